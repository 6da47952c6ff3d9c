/* How operators are reported: `Computation` and `Copy` of streamsan/record/cuda/_operators.py and
 * _copies.py, to which whatever is rare is left. */

#include "operator.h"
#include <structmember.h>

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
    return touch(touching, result, 2, self->result, accesses, device, NULL);
}

/* Where an operation on a stream is enqueued: the thread, its stack, and the stream of the enclosing
 * context where that is another one. */
static int
placed(Recording *recording, Work *work, long stream, long *thread, long *stack, long *context)
{
    Py_ssize_t count = PyList_GET_SIZE(work->contexts);
    *context = count > 1 ? PyLong_AsLong(PyList_GET_ITEM(work->contexts, count - 1)) : NONE;
    if (*context == stream) {
        *context = NONE;
    }
    return where(recording, work, thread, stack);
}

/* Report the operation on a stream; the node at work, if there is one, is the one remembered. */
static int
emit_operation(Operator *self, Work *work, long stream, PyObject *accesses, int backward)
{
    Recording *recording = self->recording;
    Outlet *outlet = (Outlet *)recording->parts.outlet;
    long thread, stack, context;
    int status = placed(recording, work, stream, &thread, &stack, &context);
    PyObject *node = backward ? Py_NewRef(work->node_name) : PyUnicode_FromStringAndSize(NULL, 0);
    PyObject *touched = status < 0 || node == NULL ? NULL : PyList_AsTuple(accesses);
    if (touched != NULL && outlet_enter(outlet) == 0) {
        PyObject *fields[13] = {
            PyLong_FromLongLong(++outlet->sequence), Py_NewRef(self->kind), Py_NewRef(self->name),
            PyLong_FromLong(stream), PyLong_FromLong(thread), PyLong_FromLong(stack),
            Py_NewRef(touched), Py_NewRef(self->copy), Py_NewRef(node),
            PyLong_FromLong(backward ? work->node_forward : NONE), PyLong_FromLong(context),
            PyLong_FromLong(NONE), Py_NewRef(Py_False),
        };
        PyObject *record = make_record(recording->parts.operation, fields, 13);
        status = record == NULL ? -1 : outlet_hand_on(outlet, record);
        Py_XDECREF(record);
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
    Py_XDECREF(touched);
    return status;
}

/* Whether this is for Python: graphs that are captured, and what custom operators are made of. */
int
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
    int backward = running(self->recording, work);
    return backward < 0 ? -1 : emit_operation(self, work, stream, accesses, backward);
}

/* The host has waited for the stream, where the operator has it do so. */
static int
synchronize(Operator *self, long stream)
{
    if (!self->synchronizes) {
        return 0;
    }
    PyObject *done = PyObject_CallFunction(self->recording->parts.synchronized, "l", stream);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Report it with accesses that are packed. */
static int
pack(Operator *self, Work *work, long stream, const Began *began)
{
    Recording *recording = self->recording;
    long thread, stack, context;
    if (placed(recording, work, stream, &thread, &stack, &context) < 0) {
        return -1;
    }
    OperationFields fields = {
        .kind = PyLong_AsLong(self->kind),
        .timeline = stream,
        .thread = thread,
        .stack = stack,
        .copy = PyLong_AsLong(self->copy),
        .forward = began->backward ? work->node_forward : NONE,
        .context = context,
        .name = self->name,
        .node = began->backward ? work->node_name : NULL,
        .accesses = work->accesses.data + began->from,
        .size = work->accesses.used - began->from,
        .count = began->packed,
    };
    return PyErr_Occurred() ? -1 : pack_operation((Outlet *)recording->parts.outlet, &fields);
}

int
operator_emit(Operator *self, Work *work, long stream, const Began *began)
{
    int status = began->packed
        ? pack(self, work, stream, began)
        : emit_operation(self, work, stream, began->accesses, began->backward);
    return status < 0 ? -1 : synchronize(self, stream);
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
    int backward = running(recording, work);
    if (backward < 0 || emit_operation(self, work, stream, accesses, backward) < 0
        || synchronize(self, stream) < 0) {
        return -1;
    }
    int several = backward && PyDict_GET_SIZE(recording->parts.known) > 1;
    return several ? in_python(self, "engine_records", "(lOO)", stream, args, kwargs) : 0;
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
        int is_tensor = PyObject_IsInstance(tensor, touching->tensor); /* or it is a number */
        PyObject *grad = is_tensor > 0
            ? PyObject_GetAttr(tensor, touching->names[REQUIRES_GRAD])
            : NULL;
        wanted = grad != NULL ? PyObject_IsTrue(grad) : -(PyErr_Occurred() != NULL);
        Py_XDECREF(grad);
    }
    return wanted;
}

/* The places of this call, borrowed; NULL with an exception. */
static PyObject *
places_of(Operator *self, PyObject *args, PyObject *kwargs)
{
    if (self->training == Py_None) {
        return self->places;
    }
    PyObject *name;
    int mode;
    PyObject *value = argument_of(args, kwargs, self->training, &name, &mode);
    int on = value == NULL ? -(PyErr_Occurred() != NULL) : PyObject_IsTrue(value);
    return on < 0 ? NULL : on ? self->updating : self->places;
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
    } else {
        PyObject *places = places_of(self, args, kwargs);
        if (places == NULL
            || touch_arguments((Accesses *)recording->parts.accesses, places, args, kwargs,
                               accesses, device, ask ? &grad : NULL) < 0) {
            return -1;
        }
    }
    return grad > 0 && ask ? note(recording, work) : grad < 0 ? -1 : 0;
}

static int
operator_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Operator *self = (Operator *)object;
    PyObject *recording, *reported, *places, *updating, *training, *kind, *name, *copy, *result;
    int fresh, shares, synchronizes, uninitialized, copies;
    if (!PyArg_ParseTuple(args, "O!OO!O!OOOOUppppi", recording_type, &recording, &reported,
                          &PyList_Type, &places, &PyList_Type, &updating, &training, &kind, &name, &copy, &result, &fresh,
                          &shares, &synchronizes, &uninitialized, &copies)) {
        return -1;
    }
    Py_XSETREF(self->recording, (Recording *)Py_NewRef(recording));
    Py_XSETREF(self->reported, Py_NewRef(reported));
    Py_XSETREF(self->places, Py_NewRef(places));
    Py_XSETREF(self->updating, Py_NewRef(updating));
    Py_XSETREF(self->training, Py_NewRef(training));
    Py_XSETREF(self->kind, Py_NewRef(kind));
    Py_XSETREF(self->name, Py_NewRef(name));
    Py_XSETREF(self->copy, Py_NewRef(copy));
    Py_XSETREF(self->result, Py_NewRef(result));
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
    Py_VISIT(self->updating);
    return 0;
}

static int
operator_unlink(PyObject *object)
{
    Operator *self = (Operator *)object;
    Py_CLEAR(self->recording);
    Py_CLEAR(self->reported);
    Py_CLEAR(self->places);
    Py_CLEAR(self->updating);
    Py_CLEAR(self->training);
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
    Py_XDECREF(self->result);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef operator_members[] = {
    {"places", T_OBJECT, offsetof(Operator, places), READONLY, NULL},
    {"training", T_OBJECT, offsetof(Operator, training), READONLY, NULL},
    {"fresh", T_INT, offsetof(Operator, fresh), READONLY, NULL},
    {"copies", T_INT, offsetof(Operator, copies), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot operator_slots[] = {
    {Py_tp_doc, "Runs and reports an operator: operator(call, args, kwargs)."},
    {Py_tp_init, operator_init},
    {Py_tp_call, operator_call},
    {Py_tp_traverse, operator_traverse},
    {Py_tp_clear, operator_unlink},
    {Py_tp_dealloc, operator_dealloc},
    {Py_tp_members, operator_members},
    {0, NULL},
};

PyType_Spec streamsan_operator_spec = {
    .name = "streamsan.record._compiled.Operator",
    .basicsize = sizeof(Operator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = operator_slots,
};
