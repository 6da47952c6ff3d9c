/* Blocks of device memory, and a table of those that live. */

#include "blocks.h"
#include <stdlib.h>
#include <structmember.h>

PyTypeObject *born_type, *blocks_type;

/* -- a block ----------------------------------------------------------------------------------- */

Born *
new_born(long owner, long thread, long stack, long graph, int backward)
{
    Born *made = (Born *)born_type->tp_alloc(born_type, 0);
    if (made != NULL) {
        made->owner = owner;
        made->thread = thread;
        made->stack = stack;
        made->graph = graph;
        made->number = made->device = NONE;
        made->backward = (char)backward;
    }
    return made;
}

static PyObject *
born_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    long owner, thread, stack, graph;
    int backward;
    if (!PyArg_ParseTuple(args, "llllp", &owner, &thread, &stack, &graph, &backward)) {
        return NULL;
    }
    return (PyObject *)new_born(owner, thread, stack, graph, backward);
}

/* The set of streams, which few are ever asked for. */
static PyObject *
born_users(PyObject *object, void *Py_UNUSED(closure))
{
    Born *self = (Born *)object;
    if (self->users == NULL) {
        PyObject *number = PyLong_FromLong(self->owner);
        PyObject *users = number == NULL ? NULL : PySet_New(NULL);
        if (users != NULL && PySet_Add(users, number) < 0) {
            Py_CLEAR(users);
        }
        Py_XDECREF(number);
        self->users = users;
    }
    return Py_XNewRef(self->users);
}

int
add_user(Born *self, PyObject *stream)
{
    if (self->users == NULL && PyLong_AsLong(stream) == self->owner) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *users = born_users((PyObject *)self, NULL);
    int known = users == NULL ? -1 : PySet_Contains(users, stream);
    int status = known ? -(known < 0) : PySet_Add(users, stream) < 0 ? -1 : 1;
    Py_XDECREF(users);
    return status;
}

static void
born_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((Born *)object)->users);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef born_members[] = {
    {"owner", T_LONG, offsetof(Born, owner), 0, NULL},
    {"thread", T_LONG, offsetof(Born, thread), 0, NULL},
    {"stack", T_LONG, offsetof(Born, stack), 0, NULL},
    {"graph", T_LONG, offsetof(Born, graph), 0, NULL},
    {"number", T_LONG, offsetof(Born, number), 0, NULL},
    {"device", T_LONG, offsetof(Born, device), 0, NULL},
    {"size", T_PYSSIZET, offsetof(Born, size), 0, NULL},
    {"backward", T_BOOL, offsetof(Born, backward), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef born_getset[] = {
    {"users", born_users, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot born_slots[] = {
    {Py_tp_doc, "A device block that an allocator handed out."},
    {Py_tp_new, born_new},
    {Py_tp_dealloc, born_dealloc},
    {Py_tp_getset, born_getset},
    {Py_tp_members, born_members},
    {0, NULL},
};

PyType_Spec streamsan_born_spec = {
    .name = "streamsan.record._compiled.Born",
    .basicsize = sizeof(Born),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = born_slots,
};

/* -- a table ----------------------------------------------------------------------------------- */

static inline size_t
home_of(const LiveBlocks *self, uint64_t address)
{
    return stir(0, address) & (self->size - 1);
}

/* Where the block of an address is, or would be put. The table has free places. */
static size_t
find(const LiveBlocks *self, uint64_t address)
{
    size_t at = home_of(self, address);
    while (self->slots[at].born != NULL && self->slots[at].address != address) {
        at = (at + 1) & (self->size - 1);
    }
    return at;
}

Born *
blocks_at(const LiveBlocks *self, uint64_t address)
{
    return self->used ? self->slots[find(self, address)].born : NULL;
}

static int
grow(LiveBlocks *self)
{
    LiveBlocks grown = {.size = self->size ? self->size * 2 : 1024};
    grown.slots = calloc(grown.size, sizeof *grown.slots);
    if (grown.slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t at = 0; at < self->size; at++) {
        if (self->slots[at].born != NULL) {
            grown.slots[find(&grown, self->slots[at].address)] = self->slots[at];
        }
    }
    free(self->slots);
    self->slots = grown.slots;
    self->size = grown.size;
    return 0;
}

int
blocks_put(LiveBlocks *self, uint64_t address, Born *born)
{
    if (self->used * 2 >= self->size && grow(self) < 0) {
        return -1;
    }
    BlockSlot *slot = &self->slots[find(self, address)];
    self->used += slot->born == NULL;
    slot->address = address;
    Py_INCREF((PyObject *)born);
    Py_XSETREF(slot->born, born);
    return 0;
}

Born *
blocks_take(LiveBlocks *self, uint64_t address)
{
    size_t mask = self->size - 1, hole = self->used ? find(self, address) : 0;
    Born *born = self->used ? self->slots[hole].born : NULL;
    if (born == NULL) {
        return NULL;
    }
    for (size_t at = (hole + 1) & mask; self->slots[at].born != NULL; at = (at + 1) & mask) {
        size_t home = home_of(self, self->slots[at].address);
        if (((at - home) & mask) >= ((at - hole) & mask)) { /* it may be found there as well */
            self->slots[hole] = self->slots[at];
            hole = at;
        }
    }
    self->slots[hole].born = NULL;
    self->used--;
    return born;
}

/* The number that a Python object is, as an address; -1 with an exception where it is none. */
static int
address_of(PyObject *key, uint64_t *address)
{
    *address = PyLong_AsUnsignedLongLong(key);
    return *address == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
}

/* get(address), pop(address): the block, or None. */
static PyObject *
blocks_get(PyObject *object, PyObject *key)
{
    uint64_t address;
    if (address_of(key, &address) < 0) {
        return NULL;
    }
    Born *born = blocks_at((LiveBlocks *)object, address);
    return Py_NewRef(born == NULL ? Py_None : (PyObject *)born);
}

static PyObject *
blocks_pop(PyObject *object, PyObject *key)
{
    uint64_t address;
    if (address_of(key, &address) < 0) {
        return NULL;
    }
    Born *born = blocks_take((LiveBlocks *)object, address);
    return born == NULL ? Py_NewRef(Py_None) : (PyObject *)born;
}

/* items(): a list of addresses and blocks. */
static PyObject *
blocks_items(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    LiveBlocks *self = (LiveBlocks *)object;
    PyObject *items = PyList_New(0);
    for (size_t at = 0; items != NULL && at < self->size; at++) {
        if (self->slots[at].born == NULL) {
            continue;
        }
        PyObject *item = Py_BuildValue("KO", (unsigned long long)self->slots[at].address,
                                       (PyObject *)self->slots[at].born);
        if (item == NULL || PyList_Append(items, item) < 0) {
            Py_CLEAR(items);
        }
        Py_XDECREF(item);
    }
    return items;
}

static Py_ssize_t
blocks_length(PyObject *object)
{
    return (Py_ssize_t)((LiveBlocks *)object)->used;
}

/* blocks[address] = block */
static int
blocks_assign(PyObject *object, PyObject *key, PyObject *value)
{
    uint64_t address;
    if (value == NULL || !Py_IS_TYPE(value, born_type)) {
        PyErr_SetString(PyExc_TypeError, "only blocks are kept; pop(address) removes one");
        return -1;
    }
    return address_of(key, &address) < 0
        ? -1
        : blocks_put((LiveBlocks *)object, address, (Born *)value);
}

static void
blocks_dealloc(PyObject *object)
{
    LiveBlocks *self = (LiveBlocks *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (size_t at = 0; at < self->size; at++) {
        Py_XDECREF((PyObject *)self->slots[at].born);
    }
    free(self->slots);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef blocks_methods[] = {
    {"get", blocks_get, METH_O, "get(address): the block, or None."},
    {"pop", blocks_pop, METH_O, "pop(address): remove the block: it, or None."},
    {"items", blocks_items, METH_NOARGS, "A list of addresses and blocks."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot blocks_slots[] = {
    {Py_tp_doc, "Live blocks by address."},
    {Py_tp_dealloc, blocks_dealloc},
    {Py_tp_methods, blocks_methods},
    {Py_mp_length, blocks_length},
    {Py_mp_ass_subscript, blocks_assign},
    {0, NULL},
};

PyType_Spec streamsan_blocks_spec = {
    .name = "streamsan.record._compiled.LiveBlocks",
    .basicsize = sizeof(LiveBlocks),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = blocks_slots,
};
