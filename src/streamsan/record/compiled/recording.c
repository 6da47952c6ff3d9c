/* What runs for each allocation and free of a program on a GPU: what
 * streamsan/record/cuda/_trace.py and _cuda_memory.py do, to which whatever is rare is left. */

#include "recording.h"
#include <structmember.h>

PyTypeObject *recording_type;

static int
is_true(PyObject *owner, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(owner, name);
    int status = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return status;
}

int
captures(Recording *self)
{
    return is_true(self->parts.streams, self->names[CAPTURES]);
}

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

int
is_on(Recording *self)
{
    int recording = is_true(self->parts.observer, self->names[RECORDING]);
    return recording > 0 ? is_true(self->parts.recorder, self->names[ENABLED]) : recording;
}

/* -- allocations ------------------------------------------------------------------------------- */

/* Rule M3 where a page of memory is new to a stream: see _cuda_cache.py. */
static int
handed_out(Recording *self, PyObject *address, long device, long owner)
{
    PyObject *page = PyLong_FromUnsignedLongLong(PyLong_AsUnsignedLongLong(address) >> 21);
    PyObject *known = page == NULL ? NULL : PyDict_GetItemWithError(self->parts.pages, page);
    Py_XDECREF(page);
    if (known != NULL && PyLong_AsLong(known) == owner) {
        return 0;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    PyObject *done = PyObject_CallFunction(self->parts.handed_out, "O" "ll", address, device, owner);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
allocate(Recording *self, PyObject *address)
{
    PyObject *current = PyObject_CallNoArgs(self->parts.device);
    long device = current == NULL ? -1 : PyLong_AsLong(current);
    Py_XDECREF(current);
    long owner = PyErr_Occurred() ? -1 : current_timeline(self, device);
    if (PyErr_Occurred() || handed_out(self, address, device, owner) < 0) {
        return -1;
    }
    long thread, stack;
    Work *work = work_of_thread(self);
    int status = work == NULL ? -1 : where(self, work, &thread, &stack);
    Py_XDECREF(work);
    int captured = status < 0 ? -1 : captures(self);
    if (captured) {
        PyObject *done = captured < 0
            ? NULL
            : PyObject_CallFunction(self->parts.allocated, "Olll", address, owner, thread, stack);
        Py_XDECREF(done);
        return done == NULL ? -1 : 0;
    }
    PyObject *node = PyObject_CallNoArgs(self->parts.node);
    PyObject *born = node == NULL ? NULL : new_born(owner, thread, stack, NONE, node != Py_None);
    Py_XDECREF(node);
    status = born == NULL ? -1 : PyDict_SetItem(self->parts.blocks, address, born);
    Py_XDECREF(born);
    return status;
}

void
was_allocated(Recording *self, PyObject *address)
{
    int on = is_on(self);
    if (on < 0 || (on && allocate(self, address) < 0)) {
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
was_freed(Recording *self, PyObject *address)
{
    PyObject *born = PyDict_GetItemWithError(self->parts.blocks, address);
    if (born == NULL) {
        PyErr_Clear();
        return;
    }
    Py_INCREF(born); /* now: an operator may be handed the address again */
    int on = PyDict_DelItem(self->parts.blocks, address) < 0 ? -1 : is_on(self);
    if (on > 0 && Py_IS_TYPE(born, born_type) && ((Born *)born)->number != NONE) {
        on = give_up(self, (Born *)born);
    }
    if (on < 0) {
        tell_error(self);
    }
    Py_DECREF(born);
}

/* allocated(address), freed(address): the same, for Python. */
static PyObject *
recording_allocated(PyObject *self, PyObject *address)
{
    was_allocated((Recording *)self, address);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *
recording_freed(PyObject *self, PyObject *address)
{
    was_freed((Recording *)self, address);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
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
report_block(Recording *self, Born *born, PyObject *address, long device, Py_ssize_t size)
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
        int status = pack_alloc(outlet, before, PyLong_AsUnsignedLongLong(address), size, behind,
                                name, born->graph);
        Py_DECREF(number);
        Py_DECREF(name);
        return status;
    }
    PyObject *fields[9] = {
        number, PyLong_FromLong(device), Py_NewRef(address), PyLong_FromSsize_t(size),
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
report_storage(Recording *self, Born *born, PyObject *storage, PyObject *address, PyObject *owner)
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
    PyObject *address = storage == NULL
        ? NULL
        : PyObject_CallMethodNoArgs(storage, self->names[DATA_PTR]);
    PyObject *born = address == NULL ? NULL : PyDict_GetItemWithError(self->parts.blocks, address);
    int status = PyErr_Occurred() ? -1 : 0;
    if (status == 0 && born == NULL) {
        status = has_untraced(self);
    }
    if (status > 0 || (status == 0 && born != NULL && !Py_IS_TYPE(born, born_type))) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->parts.seen, args[0], args[1], NULL);
        Py_XDECREF(done);
        status = done == NULL ? -1 : 0;
    } else if (status == 0 && born != NULL && ((Born *)born)->number == NONE) {
        Py_INCREF(born);
        status = report_storage(self, (Born *)born, storage, address, args[1]);
        Py_DECREF(born);
    }
    Py_XDECREF(storage);
    Py_XDECREF(address);
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

/* note(): see `note`. */
static PyObject *
recording_note(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Recording *self = (Recording *)object;
    int status = is_on(self);
    if (status > 0) {
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
    static const char *const names[] = {"work", "recording", "enabled", "captures",
                                        "untyped_storage", "data_ptr", "nbytes", "_sequence_nr",
                                        "untraced", "name", "_run", "allocator"};
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
        || !PyDict_Check(self->parts.known) || !PyDict_Check(self->parts.blocks)
        || !PyDict_Check(self->parts.notes) || !PySet_Check(self->parts.user_stacks)
        || !PyDict_Check(self->parts.pages) || !PyDict_Check(self->parts.in_flight)) {
        PyErr_SetString(PyExc_TypeError, "a part of the recording is of another type");
        return -1;
    }
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

static PyType_Slot recording_slots[] = {
    {Py_tp_doc, "What runs for each allocation, and what operators need; Recording(parts)."},
    {Py_tp_init, recording_init},
    {Py_tp_traverse, recording_traverse},
    {Py_tp_clear, recording_unlink},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {0, NULL},
};

PyType_Spec streamsan_recording_spec = {
    .name = "streamsan.record._compiled.Recording",
    .basicsize = sizeof(Recording),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = recording_slots,
};
