/* How operators are reported: `Computation` and `Copy` of streamsan/record/cuda/_operators.py and
 * _cuda_copies.py, to which whatever is rare is left. */

#include "operator.h"

PyTypeObject *operator_type;

/* Call a method of what this stands for that returns a number, or None for 0. */
static int
in_python(Operator *self, const char *method, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *arguments = Py_VaBuildValue(format, values);
    va_end(values);
    PyObject *called = arguments == NULL ? NULL : PyObject_GetAttrString(self->reported, method);
    PyObject *result = called == NULL ? NULL : PyObject_CallObject(called, arguments);
    int number = result == NULL ? -1 : result == Py_None ? 0 : (int)PyLong_AsLong(result);
    Py_XDECREF(arguments);
    Py_XDECREF(called);
    Py_XDECREF(result);
    return number;
}

/* Add what is written of the results. */
static int
made(Operator *self, PyObject *result, PyObject *kwargs, PyObject *accesses, int *device)
{
    Accesses *touching = (Accesses *)self->recording->parts.accesses;
    int pins = self->uninitialized || PyDict_GET_SIZE(touching->pinned) > 0;
    if (!pins && PyDict_GET_SIZE(kwargs)) {
        PyObject *asked = PyDict_GetItemString(kwargs, "pin_memory");
        pins = asked != NULL && asked != Py_None && asked != Py_False;
    }
    if (pins) { /* there may be pinned memory among them, or nothing is written */
        int owner = in_python(self, "made", "(OOO)", result, kwargs, accesses);
        *device = owner > *device ? owner : *device;
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *name = PyUnicode_InternFromString("output");
    int status = name == NULL ? -1 : touch(touching, result, 2, name, accesses, device, NULL);
    Py_XDECREF(name);
    return status;
}

/* Report the operation on a stream; 1 if it is a backward node's, 0 if not. */
static int
emit_operation(Operator *self, Work *work, long stream, PyObject *accesses)
{
    Recording *recording = self->recording;
    Outlet *outlet = (Outlet *)recording->parts.outlet;
    PyObject *node = NULL, *forward = NULL;
    long thread, stack;
    int backward = running(recording, work, &node, &forward);
    int status = backward < 0 ? -1 : where(recording, work, &thread, &stack);
    PyObject *timeline = PyLong_FromLong(stream);
    PyObject *context = status < 0 || timeline == NULL
        ? NULL
        : PyObject_CallOneArg(recording->parts.context, timeline);
    PyObject *touched = context == NULL ? NULL : PyList_AsTuple(accesses);
    if (touched != NULL && outlet_enter(outlet) == 0) {
        PyObject *fields[13] = {
            PyLong_FromLongLong(++outlet->sequence), self->kind, self->name, timeline,
            PyLong_FromLong(thread), PyLong_FromLong(stack), touched, self->copy, node,
            forward, context, PyLong_FromLong(NONE), Py_False,
        };
        PyObject *record = PyObject_Vectorcall(recording->parts.operation, fields, 13, NULL);
        status = record == NULL ? -1 : outlet_hand_on(outlet, record);
        Py_XDECREF(record);
        Py_XDECREF(fields[0]);
        Py_XDECREF(fields[4]);
        Py_XDECREF(fields[5]);
        Py_XDECREF(fields[11]);
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (outlet_leave(outlet) < 0) {
            tell_error(recording);
        }
        PyErr_Restore(type, value, traceback);
    } else {
        status = -1;
    }
    Py_XDECREF(node);
    Py_XDECREF(forward);
    Py_XDECREF(timeline);
    Py_XDECREF(context);
    Py_XDECREF(touched);
    return status < 0 ? -1 : backward;
}

/* Whether this is for Python: graphs that are captured, and what custom operators are made of. */
static int
is_rare(Operator *self, Work *work)
{
    return work->body != NULL && work->body != Py_None ? 1 : captures(self->recording);
}

/* Report a copy within the memory of a device; leave others to Python. */
static int
report_copy(Operator *self, Work *work, PyObject *result, PyObject *args, PyObject *kwargs,
            PyObject *accesses)
{
    Accesses *touching = (Accesses *)self->recording->parts.accesses;
    int in_place = self->copies == 2, of = touching->nowhere, to = touching->nowhere;
    PyObject *target = in_place ? PyTuple_GET_ITEM(args, 0) : result;
    PyObject *source = PyTuple_GET_ITEM(args, in_place), *names[2];
    int rare = is_rare(self, work);
    if (rare == 0) {
        names[0] = PyUnicode_InternFromString("src");
        names[1] = PyUnicode_InternFromString("self");
        rare = names[0] == NULL || names[1] == NULL
                || touch(touching, source, 1, names[0], accesses, &of, NULL) < 0
                || touch(touching, target, 2, names[1], accesses, &to, NULL) < 0
            ? -1
            : of < 0 || of != to;
        Py_XDECREF(names[0]);
        Py_XDECREF(names[1]);
    }
    if (rare) {
        return rare < 0 ? -1 : in_python(self, "between", "(OOO)", result, args, kwargs);
    }
    long stream = current_timeline(self->recording, to);
    if (stream == -1 && PyErr_Occurred()) {
        return -1;
    }
    return emit_operation(self, work, stream, accesses) < 0 ? -1 : 0;
}

int
operator_report(Operator *self, Work *work, int device, PyObject *result, PyObject *args,
                PyObject *kwargs, PyObject *accesses)
{
    Recording *recording = self->recording;
    if (self->copies) {
        return report_copy(self, work, result, args, kwargs, accesses);
    }
    if (self->fresh && made(self, result, kwargs, accesses, &device) < 0) {
        return -1;
    }
    if (PyList_GET_SIZE(accesses) == 0) {
        return 0;
    }
    int rare = device < 0 ? 1 : is_rare(self, work);
    if (rare) {
        return rare < 0 ? -1 : in_python(self, "report", "(iOOO)", device, args, kwargs, accesses);
    }
    long stream = current_timeline(recording, device);
    if (stream == -1 && PyErr_Occurred()) {
        return -1;
    }
    int backward = emit_operation(self, work, stream, accesses);
    if (backward > 0 && PyDict_GET_SIZE(recording->parts.known) > 1) {
        backward = in_python(self, "engine_records", "(lOO)", stream, args, kwargs);
    }
    if (backward >= 0 && self->synchronizes) {
        PyObject *done = PyObject_CallFunction(recording->parts.synchronized, "l", stream);
        Py_XDECREF(done);
        backward = done == NULL ? -1 : 0;
    }
    return backward < 0 ? -1 : 0;
}

/* Whether a gradient is wanted of what is copied, or of what is copied to. */
static int
copies_grad(Operator *self, PyObject *args)
{
    Accesses *touching = (Accesses *)self->recording->parts.accesses;
    if (PyTuple_GET_SIZE(args) < self->copies) {
        PyErr_SetString(PyExc_TypeError, "a copy has too few arguments");
        return -1;
    }
    int wanted = 0;
    for (int at = 0; at < self->copies && !wanted; at++) {
        PyObject *tensor = PyTuple_GET_ITEM(args, at);
        PyObject *grad = PyObject_GetAttr(tensor, touching->names[REQUIRES_GRAD]);
        wanted = grad == NULL ? -1 : PyObject_IsTrue(grad);
        Py_XDECREF(grad);
    }
    return wanted;
}

int
operator_look(Operator *self, Work *work, PyObject *args, PyObject *kwargs, PyObject *accesses,
              int *device)
{
    Recording *recording = self->recording;
    PyObject *enabled = PyObject_CallNoArgs(recording->parts.grad);
    if (enabled == NULL) {
        return -1;
    }
    int ask = enabled == Py_True, grad = 0;
    Py_DECREF(enabled);
    if (self->copies) {
        grad = copies_grad(self, args);
    } else if (touch_arguments((Accesses *)recording->parts.accesses, self->places, args, kwargs,
                               accesses, device, ask ? &grad : NULL) < 0) {
        return -1;
    }
    return grad > 0 && ask ? note(recording, work) : grad < 0 ? -1 : 0;
}

static int
operator_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Operator *self = (Operator *)object;
    PyObject *recording, *reported, *places, *kind, *name, *copy;
    int fresh, shares, synchronizes, uninitialized, copies;
    if (!PyArg_ParseTuple(args, "O!OO!OOOppppi", recording_type, &recording, &reported,
                          &PyList_Type, &places, &kind, &name, &copy, &fresh, &shares,
                          &synchronizes, &uninitialized, &copies)) {
        return -1;
    }
    Py_XSETREF(self->recording, (Recording *)Py_NewRef(recording));
    Py_XSETREF(self->reported, Py_NewRef(reported));
    Py_XSETREF(self->places, Py_NewRef(places));
    Py_XSETREF(self->kind, Py_NewRef(kind));
    Py_XSETREF(self->name, Py_NewRef(name));
    Py_XSETREF(self->copy, Py_NewRef(copy));
    self->fresh = fresh;
    self->shares = shares;
    self->synchronizes = synchronizes;
    self->uninitialized = uninitialized;
    self->copies = copies;
    return 0;
}

static int
operator_traverse(PyObject *object, visitproc visit, void *arg)
{
    Operator *self = (Operator *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->recording);
    Py_VISIT(self->reported);
    Py_VISIT(self->places);
    return 0;
}

static int
operator_unlink(PyObject *object)
{
    Operator *self = (Operator *)object;
    Py_CLEAR(self->recording);
    Py_CLEAR(self->reported);
    Py_CLEAR(self->places);
    return 0;
}

static void
operator_dealloc(PyObject *object)
{
    Operator *self = (Operator *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    operator_unlink(object);
    Py_XDECREF(self->kind);
    Py_XDECREF(self->name);
    Py_XDECREF(self->copy);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot operator_slots[] = {
    {Py_tp_doc, "Runs and reports an operator: operator(call, args, kwargs)."},
    {Py_tp_init, operator_init},
    {Py_tp_call, operator_call},
    {Py_tp_traverse, operator_traverse},
    {Py_tp_clear, operator_unlink},
    {Py_tp_dealloc, operator_dealloc},
    {0, NULL},
};

PyType_Spec streamsan_operator_spec = {
    .name = "streamsan.record._compiled.Operator",
    .basicsize = sizeof(Operator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = operator_slots,
};
