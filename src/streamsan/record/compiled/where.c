/* Where the program is: the thread, its stack, the stream and the backward node at work. */

#include "recording.h"

Work *
work_of_thread(Recording *self)
{
    PyObject *work = PyObject_GetAttr(self->parts.threads, self->names[WORK]);
    if (work != NULL && !Py_IS_TYPE(work, work_type)) {
        PyErr_SetString(PyExc_TypeError, "a thread's work is no Work");
        Py_CLEAR(work);
    }
    return (Work *)work;
}

static long
ask(PyObject *function)
{
    PyObject *found = PyObject_CallNoArgs(function);
    long number = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    return number;
}

/* Threads of the engine's report the call of backward where no line of the user's is at work: see
 * CudaRecorder.stack and Observer.thread. `caller` is (thread, stack, identity of the thread). */
static int
where_in_backward(Recording *self, Work *work, PyObject *caller, long *thread, long *stack)
{
    long of_thread, of_stack, identity;
    if (!PyArg_ParseTuple(caller, "lll", &of_thread, &of_stack, &identity)) {
        return -1;
    }
    if ((unsigned long)identity == PyThread_get_thread_ident()) {
        *thread = ask(self->parts.thread);
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *number = PyLong_FromLong(*stack);
    int users = number == NULL ? -1 : PySet_Contains(self->parts.user_stacks, number);
    Py_XDECREF(number);
    if (users < 0) {
        return -1;
    }
    *stack = users ? *stack : of_stack;
    if (work->caller != caller) {
        work->served = ask(self->parts.thread);
        if (PyErr_Occurred()) {
            return -1;
        }
        Py_XSETREF(work->caller, Py_NewRef(caller));
    }
    *thread = work->served;
    return 0;
}

int
where(Recording *self, Work *work, long *thread, long *stack)
{
    if (work->thread >= NONE && work->stack >= NONE) {
        *thread = work->thread;
        *stack = work->stack;
        return 0;
    }
    *stack = stacks_number(self->parts.stacks);
    if (*stack == -1 && PyErr_Occurred()) {
        return -1;
    }
    Py_ssize_t passes = PyList_GET_SIZE(self->parts.callers);
    if (passes) {
        PyObject *caller = Py_NewRef(PyList_GET_ITEM(self->parts.callers, passes - 1));
        int status = where_in_backward(self, work, caller, thread, stack);
        Py_DECREF(caller);
        if (status < 0) {
            return -1;
        }
    } else {
        *thread = ask(self->parts.thread);
        if (PyErr_Occurred()) {
            return -1;
        }
    }
    if (work->stack == NONE - 1) {
        work->stack = *stack;
        work->thread = *thread;
    }
    return 0;
}

/* Remember the node at work. */
static int
meet_node(Recording *self, Work *work, PyObject *node, PyObject *number)
{
    PyObject *name, *forward, *found = PyObject_CallNoArgs(self->parts.running);
    if (found == NULL || !PyArg_ParseTuple(found, "OO", &name, &forward)) {
        Py_XDECREF(found);
        return -1;
    }
    Py_XSETREF(work->node_type, Py_NewRef((PyObject *)Py_TYPE(node)));
    Py_XSETREF(work->node_number, Py_NewRef(number));
    Py_XSETREF(work->node_name, Py_NewRef(name));
    Py_XSETREF(work->node_forward, Py_NewRef(forward));
    Py_DECREF(found);
    return 0;
}

int
running(Recording *self, Work *work, PyObject **name, PyObject **forward)
{
    PyObject *node = PyObject_CallNoArgs(self->parts.node);
    if (node == NULL || node == Py_None) {
        Py_XDECREF(node);
        *name = node == NULL ? NULL : PyUnicode_FromStringAndSize(NULL, 0);
        *forward = *name == NULL ? NULL : PyLong_FromLong(NONE);
        return *forward == NULL ? -1 : 0;
    }
    /* Not the node itself: see Nodes.running. */
    PyObject *number = PyObject_CallMethodNoArgs(node, self->names[SEQUENCE_NR]);
    int known = number == NULL ? -1 : work->node_type == (PyObject *)Py_TYPE(node);
    if (known > 0) {
        known = PyObject_RichCompareBool(number, work->node_number, Py_EQ);
    }
    int status = known < 0 ? -1 : known ? 0 : meet_node(self, work, node, number);
    Py_DECREF(node);
    Py_XDECREF(number);
    if (status < 0) {
        return -1;
    }
    *name = Py_NewRef(work->node_name);
    *forward = Py_NewRef(work->node_forward);
    return 1;
}

long
current_timeline(Recording *self, long device)
{
    PyObject *number = PyLong_FromLong(device);
    PyObject *handle = number == NULL ? NULL : PyObject_CallOneArg(self->parts.raw_stream, number);
    PyObject *key = handle == NULL ? NULL : PyTuple_Pack(2, number, handle);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(self->parts.known, key);
    Py_XINCREF(found);
    if (found == NULL && key != NULL && !PyErr_Occurred()) {
        found = PyObject_CallOneArg(self->parts.current, number);
    }
    Py_XDECREF(number);
    Py_XDECREF(handle);
    Py_XDECREF(key);
    long timeline = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    return timeline;
}

#define MANY_NOTES 200000 /* then Nodes.note sees to it that there are not more */

int
note(Recording *self, Work *work)
{
    if (PyDict_GET_SIZE(self->parts.notes) > MANY_NOTES) {
        PyObject *done = PyObject_CallNoArgs(self->parts.note);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    long thread, stack;
    PyObject *next = PyObject_CallNoArgs(self->parts.sequence);
    long number = next == NULL ? -1 : PyLong_AsLong(next);
    Py_XDECREF(next);
    if (PyErr_Occurred() || where(self, work, &thread, &stack) < 0) {
        return -1;
    }
    PyObject *key = PyLong_FromLong(number - 1), *value = Py_BuildValue("(lO)", stack, Py_None);
    int status = key == NULL || value == NULL ? -1 : PyDict_SetItem(self->parts.notes, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return status;
}
