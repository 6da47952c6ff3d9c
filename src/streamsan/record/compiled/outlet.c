/* The way out for records, and the lock of the recording, which is that of
 * streamsan/virtual/monitor.py: re-entrant, and finalizers, which may run at any moment, hand their
 * work to `later`. The interpreter lock guards the fields; it is let go only to wait. */

#include "packed.h"
#include <structmember.h>

PyTypeObject *outlet_type;

PyObject *
make_record(PyObject *kind, PyObject **fields, int count)
{
    int complete = 1;
    for (int at = 0; at < count; at++) {
        complete &= fields[at] != NULL;
    }
    PyObject *made = complete ? PyObject_Vectorcall(kind, fields, count, NULL) : NULL;
    for (int at = 0; at < count; at++) {
        Py_XDECREF(fields[at]);
    }
    return made;
}

static int
run_postponed(Outlet *self)
{
    while (PyList_GET_SIZE(self->postponed)) {
        PyObject *work = Py_NewRef(PyList_GET_ITEM(self->postponed, 0));
        int taken = PySequence_DelItem(self->postponed, 0);
        PyObject *done = taken < 0 ? NULL : PyObject_CallNoArgs(work);
        Py_DECREF(work);
        Py_XDECREF(done);
        if (done == NULL) {
            return -1;
        }
    }
    return 0;
}

static int
is_mine(Outlet *self)
{
    return self->depth && self->owner == PyThread_get_thread_ident();
}

static PyThread_type_lock
closed_gate(void)
{
    PyThread_type_lock gate = PyThread_allocate_lock();
    if (gate != NULL) {
        PyThread_acquire_lock(gate, WAIT_LOCK);
    }
    return gate;
}

static void
release(Outlet *self)
{
    if (--self->depth == 0 && self->waiting && !self->open) {
        self->open = 1;
        PyThread_release_lock(self->gate);
    }
}

static void
acquire(Outlet *self, long depth)
{
    while (self->depth) { /* another thread may be faster than the one that the gate let through */
        PyThread_type_lock gate = self->gate;
        self->waiting++;
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(gate, WAIT_LOCK);
        Py_END_ALLOW_THREADS
        self->waiting--;
        self->open = 0;
    }
    self->owner = PyThread_get_thread_ident();
    self->depth = depth;
}

int
outlet_enter(Outlet *self)
{
    if (is_mine(self)) {
        self->depth++;
        return 0;
    }
    acquire(self, 1);
    if (PyList_GET_SIZE(self->postponed) && run_postponed(self) < 0) {
        release(self);
        return -1;
    }
    return 0;
}

int
outlet_leave(Outlet *self)
{
    int status = self->depth == 1 && PyList_GET_SIZE(self->postponed) ? run_postponed(self) : 0;
    release(self);
    return status;
}

static int
hand_one_on(Outlet *self, PyObject *record)
{
    PyObject *sink = Py_XNewRef(self->sink);
    PyObject *done = sink == NULL ? Py_NewRef(Py_None) : PyObject_CallOneArg(sink, record);
    Py_XDECREF(sink);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int
outlet_hand_on(Outlet *self, PyObject *record)
{
    if (self->sink == NULL) {
        return 0;
    }
    Packed *packed = packed_of(self);
    if (packed != NULL) { /* which takes a record at once, also while it hands others on */
        return packed_feed(packed, record);
    }
    if (self->busy) {
        return PyList_Append(self->behind, record);
    }
    self->busy = 1;
    int status = hand_one_on(self, record);
    while (status == 0 && PyList_GET_SIZE(self->behind)) {
        PyObject *next = Py_NewRef(PyList_GET_ITEM(self->behind, 0));
        status = PySequence_DelItem(self->behind, 0) < 0 ? -1 : hand_one_on(self, next);
        Py_DECREF(next);
    }
    self->busy = 0;
    return status;
}

int
outlet_emit(Outlet *self, PyObject *record)
{
    if (self->sink == NULL) {
        return 0;
    }
    if (outlet_enter(self) < 0) {
        return -1;
    }
    int status = outlet_hand_on(self, record);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (outlet_leave(self) < 0 && type != NULL) {
        PyErr_Clear();
    } else if (PyErr_Occurred()) {
        return -1;
    }
    PyErr_Restore(type, value, traceback);
    return status;
}

/* -- as Python sees it ------------------------------------------------------------------------- */

static PyObject *
outlet_emit_method(PyObject *object, PyObject *record)
{
    return outlet_emit((Outlet *)object, record) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
outlet_hand_on_method(PyObject *object, PyObject *record)
{
    return outlet_hand_on((Outlet *)object, record) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
outlet_enter_method(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return outlet_enter((Outlet *)object) < 0 ? NULL : Py_NewRef(object);
}

static PyObject *
outlet_exit_method(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    return outlet_leave((Outlet *)object) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
outlet_later(PyObject *object, PyObject *work)
{
    Outlet *self = (Outlet *)object;
    if (PyList_Append(self->postponed, work) < 0) {
        return NULL;
    }
    if (!self->depth) {
        self->owner = PyThread_get_thread_ident();
        self->depth = 1;
        if (outlet_leave(self) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* let_go(): leave the lock, however often it was taken; how often that is. */
static PyObject *
outlet_let_go(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Outlet *self = (Outlet *)object;
    long depth = self->depth;
    self->depth = 1;
    release(self);
    return PyLong_FromLong(depth);
}

/* take_back(depth): take the lock so often. */
static PyObject *
outlet_take_back(PyObject *object, PyObject *depth)
{
    long count = PyLong_AsLong(depth);
    if (count == -1 && PyErr_Occurred()) {
        return NULL;
    }
    acquire((Outlet *)object, count);
    Py_RETURN_NONE;
}

/* after_fork(): start afresh in a child, where the thread that held the lock is gone. */
static PyObject *
outlet_after_fork(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Outlet *self = (Outlet *)object;
    PyThread_type_lock gate = closed_gate();
    if (gate == NULL) {
        return PyErr_NoMemory();
    }
    self->gate = gate; /* nobody knows what the old one is like */
    self->waiting = 0;
    self->open = 0;
    self->depth = 0;
    self->busy = 0;
    PyList_SetSlice(self->postponed, 0, PyList_GET_SIZE(self->postponed), NULL);
    PyList_SetSlice(self->behind, 0, PyList_GET_SIZE(self->behind), NULL);
    Py_RETURN_NONE;
}

static PyObject *
outlet_get_mine(PyObject *object, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(is_mine((Outlet *)object));
}

static PyObject *
outlet_get_sink(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *sink = ((Outlet *)object)->sink;
    return Py_NewRef(sink == NULL ? Py_None : sink);
}

static int
outlet_set_sink(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    Py_XSETREF(((Outlet *)object)->sink, value == Py_None ? NULL : Py_XNewRef(value));
    return 0;
}

static int
outlet_init(PyObject *object, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Outlet *self = (Outlet *)object;
    if (self->gate == NULL) {
        self->gate = closed_gate();
        self->postponed = PyList_New(0);
        self->behind = PyList_New(0);
    }
    if (self->gate == NULL || self->postponed == NULL || self->behind == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int
outlet_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Outlet *)object)->postponed);
    Py_VISIT(((Outlet *)object)->sink);
    Py_VISIT(((Outlet *)object)->behind);
    return 0;
}

static int
outlet_unlink(PyObject *object)
{
    Py_CLEAR(((Outlet *)object)->sink);
    return 0;
}

static void
outlet_dealloc(PyObject *object)
{
    Outlet *self = (Outlet *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    outlet_unlink(object);
    Py_XDECREF(self->postponed);
    Py_XDECREF(self->behind);
    if (self->gate != NULL) {
        PyThread_release_lock(self->gate);
        PyThread_free_lock(self->gate);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef outlet_methods[] = {
    {"emit", outlet_emit_method, METH_O, "Hand a record to the sink, within the lock."},
    {"hand_on", outlet_hand_on_method, METH_O, "The same, where the lock is held."},
    {"__enter__", outlet_enter_method, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))outlet_exit_method, METH_FASTCALL, NULL},
    {"later", outlet_later, METH_O, "Run work now, or when the lock is let go."},
    {"let_go", outlet_let_go, METH_NOARGS, "Leave the lock; how often it was taken."},
    {"take_back", outlet_take_back, METH_O, "Take the lock so often."},
    {"after_fork", outlet_after_fork, METH_NOARGS, "Start afresh in a forked child."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef outlet_members[] = {
    {"sequence", T_LONGLONG, offsetof(Outlet, sequence), 0, "Number of the last operation."},
    {"recording", T_BOOL, offsetof(Outlet, recording), 0, "Whether a recording is under way."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef outlet_getset[] = {
    {"mine", outlet_get_mine, NULL, "Whether the calling thread holds the lock.", NULL},
    {"sink", outlet_get_sink, outlet_set_sink, "Takes the records; None takes nothing.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot outlet_slots[] = {
    {Py_tp_doc, "The way out for records, and the lock of the recording."},
    {Py_tp_init, outlet_init},
    {Py_tp_traverse, outlet_traverse},
    {Py_tp_clear, outlet_unlink},
    {Py_tp_dealloc, outlet_dealloc},
    {Py_tp_methods, outlet_methods},
    {Py_tp_members, outlet_members},
    {Py_tp_getset, outlet_getset},
    {0, NULL},
};

PyType_Spec streamsan_outlet_spec = {
    .name = "streamsan.record._compiled.Outlet",
    .basicsize = sizeof(Outlet),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = outlet_slots,
};
