/* What runs for each allocation and free of a program on a GPU: what
 * streamsan/record/cuda/_trace.py and _memory.py do, to which whatever is rare is left. */

#include "recording.h"
#include <stdlib.h>
#include <structmember.h>

PyTypeObject *recording_type;

void
tell_error(Recording *self)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL && traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    if (value != NULL && !PyErr_GivenExceptionMatches(value, PyExc_Exception)) {
        PyErr_Restore(type, value, traceback); /* an interrupt, for one: it is the program's */
        return;
    }
    PyObject *told = value == NULL ? NULL : PyObject_CallOneArg(self->parts.error, value);
    if (told == NULL) {
        PyErr_Clear();
    }
    Py_XDECREF(told);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* -- allocations ------------------------------------------------------------------------------- */

/* Rule M3 where a page of memory may be new to a stream: see cuda/_cache.py. */
static int
handed_out(Recording *self, uint64_t address, long device, long owner)
{
    uint64_t page = address >> 21;
    KnownPage *known = &self->pages[page & (KNOWN_PAGES - 1)];
    if (known->page == page && known->owner == owner) {
        return 0;
    }
    PyObject *done = PyObject_CallFunction(self->parts.handed_out, "Kll",
                                           (unsigned long long)address, device, owner);
    *known = (KnownPage){done == NULL ? 0 : page, owner};
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
allocate(Recording *self, uint64_t address)
{
    int device = current_device(self);
    long owner = device < 0 ? -1 : current_timeline(self, device);
    if ((owner < 0 && PyErr_Occurred()) || handed_out(self, address, device, owner) < 0) {
        return -1;
    }
    long thread, stack;
    Work *work = work_of_thread(self);
    int status = work == NULL ? -1 : where(self, work, &thread, &stack);
    Py_XDECREF(work);
    if (status < 0) {
        return -1;
    }
    if (captures(self)) {
        PyObject *done = PyObject_CallFunction(self->parts.allocated, "Klll",
                                               (unsigned long long)address, owner, thread, stack);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    int backward = in_backward(self);
    Born *born = backward < 0 ? NULL : new_born(owner, thread, stack, NONE, backward);
    status = born == NULL ? -1 : blocks_put(blocks_of(self), address, born);
    Py_XDECREF((PyObject *)born);
    return status;
}

void
was_allocated(Recording *self, uint64_t address)
{
    if (is_on(self) && allocate(self, address) < 0) {
        tell_error(self);
    }
}

/* Report a free, after the operator at work. */
static int
give_up(Recording *self, Born *born)
{
    long thread, stack;
    Work *work = work_of_thread(self);
    if (work == NULL || where(self, work, &thread, &stack) < 0) {
        Py_XDECREF(work);
        return -1;
    }
    int held = work->inside != NULL && work->inside != Py_None;
    PyObject *inside = held ? Py_NewRef(work->inside) : NULL;
    Py_DECREF(work);
    Outlet *outlet = (Outlet *)self->parts.outlet;
    int status = -1;
    if (PyDict_GET_SIZE(self->parts.in_flight)) {
        PyObject *later = PyObject_CallFunction(self->parts.partial, "OOll", self->parts.give_up,
                                                (PyObject *)born, thread, stack);
        PyObject *done = later == NULL || inside != NULL ? NULL : PyObject_CallNoArgs(later);
        status = later == NULL ? -1 : held ? PyList_Append(inside, later) : -(done == NULL);
        Py_XDECREF(done);
        Py_XDECREF(later);
    } else if (!held && packed_of(outlet) != NULL) {
        status = pack_free(outlet, born->number, thread, stack);
    } else {
        PyObject *fields[3] = {
            PyLong_FromLong(born->number), PyLong_FromLong(thread), PyLong_FromLong(stack),
        };
        PyObject *record = make_record(self->parts.free, fields, 3);
        if (record != NULL && inside != NULL) {
            PyObject *later = PyObject_CallFunctionObjArgs(self->parts.partial, self->parts.emit,
                                                           record, NULL);
            status = later == NULL ? -1 : PyList_Append(inside, later);
            Py_XDECREF(later);
        } else if (record != NULL) {
            status = outlet_emit(outlet, record);
        }
        Py_XDECREF(record);
    }
    Py_XDECREF(inside);
    return status;
}

void
was_freed(Recording *self, uint64_t address)
{
    Born *born = blocks_take(blocks_of(self), address); /* it may be handed out again at once */
    if (born != NULL && born->number != NONE && is_on(self) && give_up(self, born) < 0) {
        tell_error(self);
    }
    Py_XDECREF((PyObject *)born);
}

/* allocated(address), freed(address): the same, for Python. */
static PyObject *
tell(void (*told)(Recording *, uint64_t), PyObject *self, PyObject *number)
{
    uint64_t address = PyLong_AsUnsignedLongLong(number);
    if (!PyErr_Occurred()) {
        told((Recording *)self, address);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *
recording_allocated(PyObject *self, PyObject *address)
{
    return tell(was_allocated, self, address);
}

static PyObject *
recording_freed(PyObject *self, PyObject *address)
{
    return tell(was_freed, self, address);
}

/* -- blocks ------------------------------------------------------------------------------------ */

int
has_untraced(Recording *self)
{
    PyObject *found = PyObject_GetAttr(self->parts.allocator, self->names[UNTRACED]);
    Py_XDECREF(found);
    return found == NULL ? -1 : found != Py_None;
}

int
report_block(Recording *self, Born *born, uint64_t address, long device, Py_ssize_t size)
{
    Outlet *outlet = (Outlet *)self->parts.outlet;
    PyObject *number = PyObject_CallNoArgs(self->parts.next_number);
    PyObject *name = PyObject_GetAttr(self->parts.allocator, self->names[ALLOCATOR]);
    born->number = number == NULL ? NONE : PyLong_AsLong(number);
    born->device = device;
    born->size = size;
    if (number != NULL && name != NULL && packed_of(outlet) != NULL) {
        const long before[] = {born->number, device};
        const long behind[] = {born->owner, born->thread, born->stack};
        int status = pack_alloc(outlet, before, address, size, behind, name, born->graph);
        Py_DECREF(number);
        Py_DECREF(name);
        return status;
    }
    PyObject *fields[9] = {
        number, PyLong_FromLong(device), PyLong_FromUnsignedLongLong(address),
        PyLong_FromSsize_t(size),
        PyLong_FromLong(born->owner), PyLong_FromLong(born->thread), PyLong_FromLong(born->stack),
        name, PyLong_FromLong(born->graph),
    };
    PyObject *record = make_record(self->parts.alloc, fields, 9);
    int status = record == NULL ? -1 : outlet_emit(outlet, record);
    Py_XDECREF(record);
    return status;
}

/* The same for the block of a storage. */
static int
report_storage(Recording *self, Born *born, PyObject *storage, uint64_t address, PyObject *owner)
{
    PyObject *size = PyObject_CallMethodNoArgs(storage, self->names[NBYTES]);
    Py_ssize_t bytes = size == NULL ? -1 : PyLong_AsSsize_t(size);
    long device = PyLong_AsLong(owner);
    Py_XDECREF(size);
    return PyErr_Occurred() ? -1 : report_block(self, born, address, device, bytes);
}

/* seen(tensor, owner): report the tensor's block first, if that is still to do. */
static PyObject *
recording_seen(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Recording *self = (Recording *)object;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "seen(tensor, owner)");
        return NULL;
    }
    PyObject *storage = PyObject_CallMethodNoArgs(args[0], self->names[UNTYPED_STORAGE]);
    PyObject *start = storage == NULL
        ? NULL
        : PyObject_CallMethodNoArgs(storage, self->names[DATA_PTR]);
    uint64_t address = start == NULL ? 0 : PyLong_AsUnsignedLongLong(start);
    Born *born = start == NULL ? NULL : blocks_at(blocks_of(self), address);
    int status = PyErr_Occurred() ? -1 : 0;
    if (status == 0 && born == NULL) {
        status = has_untraced(self);
    }
    if (status > 0) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->parts.seen, args[0], args[1], NULL);
        Py_XDECREF(done);
        status = done == NULL ? -1 : 0;
    } else if (status == 0 && born != NULL && born->number == NONE) {
        Py_INCREF((PyObject *)born);
        status = report_storage(self, born, storage, address, args[1]);
        Py_DECREF((PyObject *)born);
    }
    Py_XDECREF(storage);
    Py_XDECREF(start);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* note(): see `note`. */
static PyObject *
recording_note(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recording *self = (Recording *)object;
    int status = 0;
    if (is_on(self)) {
        Work *work = work_of_thread(self);
        status = work == NULL ? -1 : note(self, work);
        Py_XDECREF(work);
    }
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* -- as Python sees it ------------------------------------------------------------------------- */

#define PART_NAME(name) #name,
static const char *const part_names[] = {PARTS(PART_NAME)};
#define PART_COUNT (int)(sizeof part_names / sizeof part_names[0])

static PyObject **
part_list(Recording *self)
{
    return (PyObject **)&self->parts;
}

static int
recording_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Recording *self = (Recording *)object;
    static const char *const names[] = {"work", "untyped_storage", "data_ptr", "nbytes",
                                        "_sequence_nr", "untraced", "name", "_run", "allocator"};
    static uint64_t serials = 0;
    PyObject *given;
    if (!PyArg_ParseTuple(args, "O", &given)) {
        return -1;
    }
    for (int at = 0; at < PART_COUNT; at++) {
        PyObject *part = PyObject_GetAttrString(given, part_names[at]);
        if (part == NULL) {
            return -1;
        }
        Py_XSETREF(part_list(self)[at], part);
    }
    for (int at = 0; at < NAME_COUNT; at++) {
        Py_XSETREF(self->names[at], PyUnicode_InternFromString(names[at]));
        if (self->names[at] == NULL) {
            return -1;
        }
    }
    if (!Py_IS_TYPE(self->parts.accesses, accesses_type)
        || !Py_IS_TYPE(self->parts.stacks, stacks_type) || !PyList_Check(self->parts.callers)
        || !PyObject_TypeCheck(self->parts.outlet, outlet_type)
        || !PyList_Check(self->parts.captures)
        || !PyDict_Check(self->parts.known) || !Py_IS_TYPE(self->parts.blocks, blocks_type)
        || !PyDict_Check(self->parts.notes) || !PySet_Check(self->parts.user_stacks)
        || !PyDict_Check(self->parts.in_flight)) {
        PyErr_SetString(PyExc_TypeError, "a part of the recording is of another type");
        return -1;
    }
    if (self->pages == NULL && (self->pages = calloc(KNOWN_PAGES, sizeof *self->pages)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->enabled = 1;
    self->serial = ++serials;
    return 0;
}

static int
recording_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    for (int at = 0; at < PART_COUNT; at++) {
        Py_VISIT(part_list((Recording *)object)[at]);
    }
    return 0;
}

static int
recording_unlink(PyObject *object)
{
    for (int at = 0; at < PART_COUNT; at++) {
        Py_CLEAR(part_list((Recording *)object)[at]);
    }
    return 0;
}

static void
recording_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    recording_unlink(object);
    for (int at = 0; at < NAME_COUNT; at++) {
        Py_XDECREF(((Recording *)object)->names[at]);
    }
    free(((Recording *)object)->pages);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef recording_methods[] = {
    {"allocated", recording_allocated, METH_O, "The allocator handed out a block."},
    {"freed", recording_freed, METH_O, "The allocator took a block back."},
    {"seen", (PyCFunction)(void (*)(void))recording_seen, METH_FASTCALL,
     "Report a tensor's block, if that is still to do."},
    {"begin", (PyCFunction)(void (*)(void))recording_begin, METH_FASTCALL,
     "begin(reported, args, kwargs): an operator is about to run."},
    {"note", recording_note, METH_NOARGS, "An operator that makes a node is at work."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef recording_members[] = {
    {"enabled", T_INT, offsetof(Recording, enabled), 0, "Whether anything is recorded at all."},
    {"divided", T_INT, offsetof(Recording, divided), 0, "Whether there are green contexts."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot recording_slots[] = {
    {Py_tp_doc, "What runs for each allocation, and what operators need; Recording(parts)."},
    {Py_tp_init, recording_init},
    {Py_tp_traverse, recording_traverse},
    {Py_tp_clear, recording_unlink},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {Py_tp_members, recording_members},
    {0, NULL},
};

PyType_Spec streamsan_recording_spec = {
    .name = "streamsan.record._compiled.Recording",
    .basicsize = sizeof(Recording),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = recording_slots,
};
