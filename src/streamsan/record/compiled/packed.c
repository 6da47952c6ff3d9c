/* Records as bytes, in msgpack: each an array of its tag and fields, in the order of
 * streamsan/model/records.py. Those of operations, allocations and frees, by far the most, are
 * written here; `encode` does the others. */

#include "packed.h"
#include "msgpack.h"
#include <stdlib.h>
#include <string.h>

PyTypeObject *packed_type;

/* -- room -------------------------------------------------------------------------------------- */

/* Where to write so many bytes, behind `used` of *data; NULL with an exception. */
static char *
room_for(char **data, size_t *room, size_t used, size_t more)
{
    if (*room - used < more) {
        size_t wanted = *room ? *room : 1024;
        while (wanted - used < more) {
            wanted *= 2;
        }
        char *moved = realloc(*data, wanted);
        if (moved == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        *data = moved;
        *room = wanted;
    }
    return *data + used;
}

static char *
start_record(Outlet *outlet, size_t most)
{
    if (outlet_enter(outlet) < 0) {
        return NULL;
    }
    Packed *packed = packed_of(outlet);
    char *to = packed == NULL ? NULL : room_for(&packed->data, &packed->room, packed->used, most);
    if (to == NULL) { /* with an exception, or the recording has just ended */
        outlet_leave(outlet);
    }
    return to;
}

static int
count_record(Packed *self)
{
    if (++self->count < self->limit) {
        return 0;
    }
    PyObject *done = PyObject_CallNoArgs(self->full);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
end_record(Outlet *outlet, char *end)
{
    Packed *packed = packed_of(outlet);
    packed->used = (size_t)(end - packed->data);
    int status = count_record(packed);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (outlet_leave(outlet) < 0) {
        status = -1;
    }
    if (type != NULL) {
        PyErr_Restore(type, value, traceback);
    }
    return status;
}

/* -- records ----------------------------------------------------------------------------------- */

int
pack_access(Bytes *to, const Extent *extent, int space, int mode, PyObject *argument)
{
    Py_ssize_t size;
    const char *name = PyUnicode_AsUTF8AndSize(argument, &size);
    char *at = name == NULL
        ? NULL
        : room_for(&to->data, &to->room, to->used,
                   4 * HEAD + size + (4 + 2 * (size_t)extent->outer) * INTEGER);
    if (at == NULL) {
        return -1;
    }
    at = integer(array(at, 7), space);
    at = integer(integer(at, extent->address), extent->run);
    at = array(at, extent->outer);
    for (int dim = 0; dim < extent->outer; dim++) {
        at = integer(at, extent->sizes[dim]);
    }
    at = array(at, extent->outer);
    for (int dim = 0; dim < extent->outer; dim++) {
        at = integer(at, extent->strides[dim]);
    }
    at = text(integer(at, mode), name, size);
    to->used = (size_t)(at - to->data);
    return 0;
}

int
pack_operation(Outlet *outlet, const OperationFields *fields)
{
    Py_ssize_t size, node_size = 0;
    const char *name = PyUnicode_AsUTF8AndSize(fields->name, &size), *node = "";
    if (name != NULL && fields->node != NULL) {
        node = PyUnicode_AsUTF8AndSize(fields->node, &node_size);
    }
    if (name == NULL || node == NULL) {
        return -1;
    }
    char *at = start_record(outlet, 64 + 10 * INTEGER + 4 * HEAD + size + node_size + fields->size);
    if (at == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    at = text(array(at, 14), "op", 2);
    at = integer(integer(at, ++outlet->sequence), fields->kind);
    at = text(at, name, size);
    at = integer(integer(integer(at, fields->timeline), fields->thread), fields->stack);
    at = array(at, fields->count);
    memcpy(at, fields->accesses, fields->size);
    at = text(integer(at + fields->size, fields->copy), node, node_size);
    at = integer(integer(integer(at, fields->forward), fields->context), -1);
    *at++ = (char)0xC2; /* false: not captured */
    return end_record(outlet, at);
}

int
pack_alloc(Outlet *outlet, const long *before, uint64_t address, int64_t size,
           const long *behind, PyObject *allocator, long graph)
{
    Py_ssize_t length;
    const char *name = PyUnicode_AsUTF8AndSize(allocator, &length);
    if (name == NULL) {
        return -1;
    }
    char *at = start_record(outlet, 16 + 8 * INTEGER + HEAD + length);
    if (at == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    at = text(array(at, 10), "alloc", 5);
    at = integer(integer(at, before[0]), before[1]);
    at = integer(unsigned_integer(at, address), size);
    at = integer(integer(integer(at, behind[0]), behind[1]), behind[2]);
    return end_record(outlet, integer(text(at, name, length), graph));
}

int
pack_free(Outlet *outlet, long block, long thread, long stack)
{
    char *at = start_record(outlet, 16 + 3 * INTEGER);
    if (at == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    at = text(array(at, 4), "free", 4);
    return end_record(outlet, integer(integer(integer(at, block), thread), stack));
}

Packed *
packed_of(Outlet *outlet)
{
    PyObject *sink = outlet->sink;
    return sink != NULL && Py_IS_TYPE(sink, packed_type) ? (Packed *)sink : NULL;
}

/* The bytes of a record, a new reference. */
static PyObject *
encoded(Packed *self, PyObject *record)
{
    PyObject *raw = PyObject_CallOneArg(self->encode, record);
    if (raw != NULL && PyBytes_Check(raw) && PyBytes_GET_SIZE(raw) <= self->most) {
        return raw;
    }
    if (raw == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        return NULL;
    }
    PyErr_Clear();
    Py_XDECREF(raw);
    raw = PyObject_CallOneArg(self->otherwise, record);
    if (raw != NULL && !PyBytes_Check(raw)) {
        PyErr_SetString(PyExc_TypeError, "a record is encoded as bytes");
        Py_CLEAR(raw);
    }
    return raw;
}

int
packed_feed(Packed *self, PyObject *record)
{
    PyObject *raw = encoded(self, record);
    if (raw == NULL) {
        return -1;
    }
    size_t size = (size_t)PyBytes_GET_SIZE(raw);
    char *to = size ? room_for(&self->data, &self->room, self->used, size) : NULL;
    if (to != NULL) {
        memcpy(to, PyBytes_AS_STRING(raw), size);
        self->used += size;
    }
    Py_DECREF(raw);
    return to != NULL ? count_record(self) : PyErr_Occurred() ? -1 : 0;
}

/* -- as Python sees it ------------------------------------------------------------------------- */

static PyObject *
packed_call(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *record;
    if (!PyArg_ParseTuple(args, "O", &record)) {
        return NULL;
    }
    return packed_feed((Packed *)object, record) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
packed_whole(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Packed *self = (Packed *)object;
    PyObject *raw = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(HEAD + self->used));
    if (raw == NULL) {
        return NULL;
    }
    char *to = headed(PyBytes_AS_STRING(raw), 0xDD, (uint64_t)self->count, 4);
    if (self->used) {
        memcpy(to, self->data, self->used);
    }
    self->given = self->used;
    self->given_count = self->count;
    return raw;
}

static PyObject *
packed_clear(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Packed *self = (Packed *)object;
    self->used = self->given = 0;
    self->count = self->given_count = 0;
    Py_RETURN_NONE;
}

static Py_ssize_t
packed_length(PyObject *object)
{
    return ((Packed *)object)->count;
}

/* del packed[:count]: those that `whole` gave last. It is no call, after which a signal's handler
 * could run: see Link.hand_over. */
static int
packed_delete(PyObject *object, PyObject *key, PyObject *value)
{
    Packed *self = (Packed *)object;
    Py_ssize_t start, stop, step;
    if (value != NULL || !PySlice_Check(key) || PySlice_Unpack(key, &start, &stop, &step) < 0
        || start != 0 || step != 1 || stop != self->given_count) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "only what `whole` gave last can be removed");
        }
        return -1;
    }
    self->used -= self->given;
    self->count -= self->given_count;
    memmove(self->data, self->data + self->given, self->used);
    self->given = 0;
    self->given_count = 0;
    return 0;
}

static int
packed_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Packed *self = (Packed *)object;
    PyObject *encode, *otherwise, *full;
    Py_ssize_t most;
    long limit;
    if (!PyArg_ParseTuple(args, "OOOnl", &encode, &otherwise, &full, &most, &limit)) {
        return -1;
    }
    Py_XSETREF(self->otherwise, Py_NewRef(otherwise));
    self->most = most;
    Py_XSETREF(self->encode, Py_NewRef(encode));
    Py_XSETREF(self->full, Py_NewRef(full));
    self->limit = limit;
    return 0;
}

static int
packed_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Packed *)object)->encode);
    Py_VISIT(((Packed *)object)->otherwise);
    Py_VISIT(((Packed *)object)->full);
    return 0;
}

static int
packed_unlink(PyObject *object)
{
    Py_CLEAR(((Packed *)object)->encode);
    Py_CLEAR(((Packed *)object)->otherwise);
    Py_CLEAR(((Packed *)object)->full);
    return 0;
}

static void
packed_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    packed_unlink(object);
    free(((Packed *)object)->data);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef packed_methods[] = {
    {"whole", packed_whole, METH_NOARGS, "All records so far, as one array."},
    {"clear", packed_clear, METH_NOARGS, "Forget all records."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot packed_slots[] = {
    {Py_tp_doc, "Packed(encode, otherwise, full, most, limit): records as bytes."},
    {Py_tp_init, packed_init},
    {Py_tp_call, packed_call},
    {Py_tp_traverse, packed_traverse},
    {Py_tp_clear, packed_unlink},
    {Py_tp_dealloc, packed_dealloc},
    {Py_tp_methods, packed_methods},
    {Py_mp_length, packed_length},
    {Py_mp_ass_subscript, packed_delete},
    {0, NULL},
};

PyType_Spec streamsan_packed_spec = {
    .name = "streamsan.record._compiled.Packed",
    .basicsize = sizeof(Packed),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = packed_slots,
};
