/* Operators at work: `run` and `Running` of streamsan/record/cuda/_operators.py. */

#include "operator.h"
#include <string.h>

typedef struct {
    PyObject_HEAD
    Began began;
    PyObject *args, *kwargs;
} Running;

PyTypeObject *running_type;

static inline Operator *
operator_of(Began *self)
{
    return (Operator *)self->op;
}

static inline Work *
work_of(Began *self)
{
    return (Work *)self->work;
}

int
start(Began *self, Operator *op, Work *work)
{
    PyObject *held = PyList_New(0), *accesses = PyList_New(0);
    if (held == NULL || accesses == NULL) {
        Py_XDECREF(held);
        Py_XDECREF(accesses);
        return -1;
    }
    *self = (Began){
        .op = Py_NewRef((PyObject *)op),
        .work = Py_NewRef((PyObject *)work),
        .accesses = accesses,
        .held = held,
        .outer = work->inside,
        .outer_stack = work->stack,
        .outer_thread = work->thread,
        .from = work->accesses.used,
        .device = ((Accesses *)op->recording->parts.accesses)->nowhere,
    };
    work->inside = Py_NewRef(held);
    work->stack = work->thread = op->shares ? NONE - 1 : NONE - 2;
    return 0;
}

void
keep_failure(Began *self)
{
    PyErr_Fetch(&self->failure[0], &self->failure[1], &self->failure[2]);
}

void
leave(Began *self)
{
    Work *work = work_of(self);
    if (work->inside == self->held) {
        Py_XINCREF(self->outer);
        Py_SETREF(work->inside, self->outer);
    }
}

int
has_failed(Began *self)
{
    if (self->failure[0] == NULL) {
        return 0;
    }
    PyErr_Restore(self->failure[0], self->failure[1], self->failure[2]);
    memset(self->failure, 0, sizeof self->failure);
    tell_error(operator_of(self)->recording);
    return 1;
}

void
stop(Began *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    leave(self);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(self->held); at++) {
        PyObject *happened = Py_NewRef(PyList_GET_ITEM(self->held, at));
        PyObject *done = PyObject_CallNoArgs(happened);
        Py_DECREF(happened);
        if (done == NULL) {
            tell_error(operator_of(self)->recording);
            break;
        }
        Py_DECREF(done);
    }
    work_of(self)->stack = self->outer_stack;
    work_of(self)->thread = self->outer_thread;
    work_of(self)->accesses.used = self->from;
    if (type != NULL) { /* else an interrupt meanwhile is the program's */
        PyErr_Restore(type, value, traceback);
    }
}

void
clear(Began *self)
{
    Py_CLEAR(self->op);
    Py_CLEAR(self->work);
    Py_CLEAR(self->accesses);
    Py_CLEAR(self->held);
    Py_CLEAR(self->outer);
    Py_CLEAR(self->marks);
    for (int at = 0; at < 3; at++) {
        Py_CLEAR(self->failure[at]);
    }
}

/* The operator is about to run: look at its arguments. */
static Running *
run(Operator *op, Work *work, PyObject *args, PyObject *kwargs)
{
    Running *self = (Running *)running_type->tp_alloc(running_type, 0);
    if (self == NULL || start(&self->began, op, work) < 0) {
        Py_XDECREF(self);
        return NULL;
    }
    self->args = Py_NewRef(args);
    self->kwargs = Py_NewRef(kwargs);
    if (operator_look(op, work, args, kwargs, self->began.accesses, &self->began.device) < 0) {
        keep_failure(&self->began);
    }
    return self;
}

/* The operator gave a result: report it. Errors are told, unless they are the program's. */
static void
finish(Running *self, PyObject *result)
{
    Began *began = &self->began;
    leave(began); /* an operator that cannot take its arguments either does not come here */
    if (!has_failed(began)
        && operator_report(operator_of(began), work_of(began), began->device, result, self->args,
                           self->kwargs, began->accesses) < 0) {
        tell_error(operator_of(began)->recording);
    }
}

static PyObject *
running_done(PyObject *object, PyObject *result)
{
    finish((Running *)object, result);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *
running_end(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    stop(&((Running *)object)->began);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static int
running_traverse(PyObject *object, visitproc visit, void *arg)
{
    Running *self = (Running *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->began.op);
    Py_VISIT(self->began.work);
    Py_VISIT(self->began.accesses);
    Py_VISIT(self->began.held);
    Py_VISIT(self->began.outer);
    for (int at = 0; at < 3; at++) {
        Py_VISIT(self->began.failure[at]);
    }
    Py_VISIT(self->args);
    Py_VISIT(self->kwargs);
    return 0;
}

static void
running_dealloc(PyObject *object)
{
    Running *self = (Running *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(&self->began);
    Py_XDECREF(self->args);
    Py_XDECREF(self->kwargs);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef running_methods[] = {
    {"done", running_done, METH_O, "The operator gave a result: report it."},
    {"end", running_end, METH_NOARGS, "Report what happened inside of it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot running_slots[] = {
    {Py_tp_doc, "An operator at work, till it and what happened inside are reported."},
    {Py_tp_traverse, running_traverse},
    {Py_tp_dealloc, running_dealloc},
    {Py_tp_methods, running_methods},
    {0, NULL},
};

PyType_Spec streamsan_running_spec = {
    .name = "streamsan.record._compiled.Running",
    .basicsize = sizeof(Running),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = running_slots,
};

/* begin(reported, args, kwargs): what is to be told of the end of an operator, which is about to
 * run; None where nothing is recorded. What is no Operator is Python's. */
PyObject *
recording_begin(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Recording *self = (Recording *)object;
    if (count != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "begin(reported, args, kwargs)");
        return NULL;
    }
    if (!is_on(self)) {
        return Py_NewRef(Py_None);
    }
    if (!Py_IS_TYPE(args[0], operator_type)) {
        return PyObject_Vectorcall(self->parts.begin, args, 3, NULL);
    }
    Work *work = work_of_thread(self);
    Running *running = work == NULL ? NULL : run((Operator *)args[0], work, args[1], args[2]);
    Py_XDECREF(work);
    return (PyObject *)running;
}

/* operator(call, args, kwargs): run it, and report it and then what happened inside (rule C7). */
PyObject *
operator_call(PyObject *object, PyObject *given, PyObject *Py_UNUSED(keywords))
{
    Operator *self = (Operator *)object;
    PyObject *call, *args, *kwargs;
    if (!PyArg_ParseTuple(given, "OO!O!", &call, &PyTuple_Type, &args, &PyDict_Type, &kwargs)) {
        return NULL;
    }
    Work *work = work_of_thread(self->recording);
    Running *running = work == NULL ? NULL : run(self, work, args, kwargs);
    Py_XDECREF(work);
    if (running == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Call(call, args, PyDict_GET_SIZE(kwargs) ? kwargs : NULL);
    if (result != NULL) {
        finish(running, result);
    }
    stop(&running->began);
    Py_DECREF(running);
    if (PyErr_Occurred()) {
        Py_CLEAR(result);
    }
    return result;
}
