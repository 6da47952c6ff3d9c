/* Operators at work: `run` and `Running` of streamsan/record/cuda/_operators.py. */

#include "operator.h"
#include <string.h>

typedef struct {
    PyObject_HEAD
    Operator *operator;
    Work *work;
    PyObject *args, *kwargs, *accesses, *held;
    PyObject *outer; /* the work's `inside` before */
    long outer_stack, outer_thread;
    PyObject *failure[3]; /* the exception that looking at the arguments ended with */
    int device;
} Running;

PyTypeObject *running_type;

/* The operator is about to run: look at its arguments. */
static Running *
start(Operator *operator, Work *work, PyObject *args, PyObject *kwargs)
{
    Running *self = (Running *)running_type->tp_alloc(running_type, 0);
    PyObject *held = PyList_New(0), *accesses = PyList_New(0);
    if (self == NULL || held == NULL || accesses == NULL) {
        Py_XDECREF(self);
        Py_XDECREF(held);
        Py_XDECREF(accesses);
        return NULL;
    }
    self->operator = (Operator *)Py_NewRef(operator);
    self->work = (Work *)Py_NewRef(work);
    self->args = Py_NewRef(args);
    self->kwargs = Py_NewRef(kwargs);
    self->accesses = accesses;
    self->held = held;
    self->outer = work->inside;
    self->outer_stack = work->stack;
    self->outer_thread = work->thread;
    work->inside = Py_NewRef(held);
    work->stack = work->thread = operator->shares ? NONE - 1 : NONE - 2;
    self->device = ((Accesses *)operator->recording->parts.accesses)->nowhere;
    if (operator_look(operator, work, args, kwargs, accesses, &self->device) < 0) {
        PyErr_Fetch(&self->failure[0], &self->failure[1], &self->failure[2]);
    }
    return self;
}

/* What was kept while it ran goes nowhere any more. */
static void
leave(Running *self)
{
    if (self->work->inside == self->held) {
        Py_XINCREF(self->outer);
        Py_SETREF(self->work->inside, self->outer);
    }
}

/* The operator gave a result: report it. Errors are told, unless they are the program's. */
static void
finish(Running *self, PyObject *result)
{
    Operator *operator = self->operator;
    leave(self);
    if (self->failure[0] != NULL) { /* not where the operator cannot take its arguments either */
        PyErr_Restore(self->failure[0], self->failure[1], self->failure[2]);
        memset(self->failure, 0, sizeof self->failure);
        tell_error(operator->recording);
    } else if (operator_report(operator, self->work, self->device, result, self->args,
                               self->kwargs, self->accesses) < 0) {
        tell_error(operator->recording);
    }
}

/* Let happen what was kept while the operator ran; an exception stays what it is. */
static void
stop(Running *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    leave(self);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(self->held); at++) {
        PyObject *happened = Py_NewRef(PyList_GET_ITEM(self->held, at));
        PyObject *done = PyObject_CallNoArgs(happened);
        Py_DECREF(happened);
        if (done == NULL) {
            tell_error(self->operator->recording);
            break;
        }
        Py_DECREF(done);
    }
    self->work->stack = self->outer_stack;
    self->work->thread = self->outer_thread;
    if (type != NULL) { /* else an interrupt meanwhile is the program's */
        PyErr_Restore(type, value, traceback);
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
    stop((Running *)object);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static int
running_traverse(PyObject *object, visitproc visit, void *arg)
{
    Running *self = (Running *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)self->operator);
    Py_VISIT((PyObject *)self->work);
    Py_VISIT(self->args);
    Py_VISIT(self->kwargs);
    Py_VISIT(self->accesses);
    Py_VISIT(self->held);
    Py_VISIT(self->outer);
    for (int at = 0; at < 3; at++) {
        Py_VISIT(self->failure[at]);
    }
    return 0;
}

static void
running_dealloc(PyObject *object)
{
    Running *self = (Running *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->operator);
    Py_XDECREF(self->work);
    Py_XDECREF(self->args);
    Py_XDECREF(self->kwargs);
    Py_XDECREF(self->accesses);
    Py_XDECREF(self->held);
    Py_XDECREF(self->outer);
    for (int at = 0; at < 3; at++) {
        Py_XDECREF(self->failure[at]);
    }
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
    int on = is_on(self);
    if (on <= 0) {
        return on < 0 ? NULL : Py_NewRef(Py_None);
    }
    if (!Py_IS_TYPE(args[0], operator_type)) {
        return PyObject_Vectorcall(self->parts.begin, args, 3, NULL);
    }
    Work *work = work_of_thread(self);
    Running *running = work == NULL ? NULL : start((Operator *)args[0], work, args[1], args[2]);
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
    Running *running = work == NULL ? NULL : start(self, work, args, kwargs);
    Py_XDECREF(work);
    if (running == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Call(call, args, PyDict_GET_SIZE(kwargs) ? kwargs : NULL);
    if (result != NULL) {
        finish(running, result);
    }
    stop(running);
    Py_DECREF(running);
    if (PyErr_Occurred()) {
        Py_CLEAR(result);
    }
    return result;
}
