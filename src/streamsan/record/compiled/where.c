/* Where the program is: the thread, its stack, the stream and the backward node at work. */

#include "recording.h"
#include <string.h>

/* The work that this thread asked for last, while that lives, and of which recording, and as which
 * thread of Python's: one of the system's may be several of them, one after another. */
static _Thread_local struct {
    uint64_t recording, thread;
    Work *work; /* borrowed; NULL: none */
} last;

void
forget_work(const Work *work)
{
    if (last.work == work) { /* another thread's is asked for no more */
        last.work = NULL;
    }
}

Work *
work_of_thread(Recording *self)
{
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    if (last.work != NULL && last.recording == self->serial && last.thread == thread) {
        return (Work *)Py_NewRef((PyObject *)last.work);
    }
    PyObject *work = PyObject_GetAttr(self->parts.threads, self->names[WORK]);
    if (work != NULL && !Py_IS_TYPE(work, work_type)) {
        PyErr_SetString(PyExc_TypeError, "a thread's work is no Work");
        Py_CLEAR(work);
    }
    last.recording = self->serial;
    last.thread = thread;
    last.work = (Work *)work;
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

/* Timeline of the calling thread, which is asked for once in a recording. */
static long
own_timeline(Recording *self, Work *work)
{
    PyObject *run = PyObject_GetAttr(self->parts.observer, self->names[RUN]);
    if (run == NULL) {
        return -1;
    }
    if (work->run != run) { /* the same recording's is the same object */
        work->own = ask(self->parts.thread);
        if (PyErr_Occurred()) {
            Py_DECREF(run);
            return -1;
        }
        Py_XSETREF(work->run, Py_NewRef(run));
    }
    Py_DECREF(run);
    return work->own;
}

/* Threads of the engine's report the call of backward where no line of the user's is at work: see
 * CudaRecorder.stack and Observer.thread. `caller` is (thread, stack, identity of the thread). */
static int
where_in_backward(Recording *self, Work *work, PyObject *caller, long *thread, long *stack)
{
    if (!PyTuple_Check(caller) || PyTuple_GET_SIZE(caller) != 3) {
        PyErr_SetString(PyExc_TypeError, "a caller is (thread, stack, identity)");
        return -1;
    }
    long of_stack = PyLong_AsLong(PyTuple_GET_ITEM(caller, 1));
    unsigned long identity = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(caller, 2));
    if (identity == PyThread_get_thread_ident()) {
        *thread = own_timeline(self, work);
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
        *thread = own_timeline(self, work);
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

/* Whether the node of that name and number is the one that the work remembers. */
static int
is_remembered(Work *work, const char *node, int64_t number)
{
    if (work->node_name == NULL || work->node_number != number) {
        return 0;
    }
    const char *known = PyUnicode_AsUTF8(work->node_name);
    return known == NULL ? -1 : strcmp(known, node) == 0;
}

/* Remember it, and the stack of its forward operation: see Nodes.running. */
static int
remember(Recording *self, Work *work, const char *node, int64_t number)
{
    PyObject *key = PyLong_FromLongLong(number), *name = PyUnicode_FromString(node);
    PyObject *noted = key == NULL ? NULL : PyDict_GetItemWithError(self->parts.notes, key);
    long forward = noted == NULL ? NONE : PyLong_AsLong(PyTuple_GET_ITEM(noted, 0));
    Py_XDECREF(key);
    if (name == NULL || PyErr_Occurred()) {
        Py_XDECREF(name);
        return -1;
    }
    Py_XSETREF(work->node_name, name);
    work->node_forward = forward;
    work->node_number = number;
    return 0;
}

int
meet_node(Recording *self, Work *work, const char *node, int64_t number)
{
    int known = is_remembered(work, node, number);
    return known > 0 ? 0 : known < 0 ? -1 : remember(self, work, node, number);
}

int
running(Recording *self, Work *work)
{
    PyObject *node = PyObject_CallNoArgs(self->parts.node);
    if (node == NULL || node == Py_None) {
        Py_XDECREF(node);
        return node == NULL ? -1 : 0;
    }
    PyObject *number = PyObject_CallMethodNoArgs(node, self->names[SEQUENCE_NR]);
    PyObject *name = number == NULL ? NULL : PyObject_CallMethodNoArgs(node, self->names[NAME]);
    Py_DECREF(node);
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    /* some nodes have the highest number there is, which stands for none */
    int64_t key = text == NULL ? NONE : (int64_t)PyLong_AsUnsignedLongLongMask(number);
    int status = text == NULL ? -1 : meet_node(self, work, text, key);
    Py_XDECREF(number);
    Py_XDECREF(name);
    return status < 0 || PyErr_Occurred() ? -1 : 1;
}

int
current_device(Recording *self)
{
    int device = self->current == NULL ? -1 : self->current->device();
    return device >= 0 ? device : (int)ask(self->parts.device);
}

int
in_backward(Recording *self)
{
    if (self->current != NULL) {
        return self->current->in_backward();
    }
    PyObject *node = PyObject_CallNoArgs(self->parts.node);
    int found = node == NULL ? -1 : node != Py_None;
    Py_XDECREF(node);
    return found;
}

/* Where a stream is kept by its id, or NULL. Ids of torch's own streams are 0, of the default one,
 * or odd, and mean the same as long as the process lives; those of others are their handles, which
 * may come again (c10/cuda/CUDAStream.cpp). In a green context the default stream is another one. */
static KnownStream *
place_of(Recording *self, int device, int64_t id)
{
    size_t hash = (size_t)(id >> 1) ^ (size_t)(id >> 5) ^ (size_t)device * 7;
    int stays = id == 0 ? !self->divided : id > 0 && (id & 1);
    return stays ? &self->streams[hash & (KNOWN_STREAMS - 1)] : NULL;
}

long
current_timeline(Recording *self, int device)
{
    int64_t id = self->current == NULL ? -1 : self->current->stream(device);
    KnownStream *place = place_of(self, device, id);
    if (place != NULL && place->known && place->id == id && place->device == device) {
        return place->timeline;
    }
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
    if (place != NULL && timeline >= 0) {
        *place = (KnownStream){id, device, 1, timeline};
    }
    return timeline;
}

#define MANY_NOTES 200000 /* then Nodes.note sees to it that there are not more */

int
note_node(Recording *self, Work *work, int64_t number)
{
    if (PyDict_GET_SIZE(self->parts.notes) > MANY_NOTES) {
        PyObject *done = PyObject_CallNoArgs(self->parts.note);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    long thread, stack;
    if (where(self, work, &thread, &stack) < 0) {
        return -1;
    }
    PyObject *key = PyLong_FromLongLong(number), *origin = PyLong_FromLong(stack);
    PyObject *value = origin == NULL ? NULL : PyTuple_Pack(2, origin, Py_None);
    int status = key == NULL || value == NULL ? -1 : PyDict_SetItem(self->parts.notes, key, value);
    Py_XDECREF(key);
    Py_XDECREF(origin);
    Py_XDECREF(value);
    return status;
}

int
note(Recording *self, Work *work)
{
    PyObject *next = PyObject_CallNoArgs(self->parts.sequence);
    long long number = next == NULL ? -1 : PyLong_AsLongLong(next);
    Py_XDECREF(next);
    return PyErr_Occurred() ? -1 : note_node(self, work, number - 1);
}
