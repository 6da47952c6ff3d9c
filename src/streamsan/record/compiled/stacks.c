/* Numbers for Python stacks: walks the calling thread's frames and looks their codes and
 * instructions up in a table. No reference to a frame outlasts a call. */

#include "core.h"
#include <frameobject.h>
#include <stdlib.h>
#include <string.h>

PyTypeObject *stacks_type;

/* Innermost frames by which stacks differ: a deep recursion would have ever longer ones. */
#define DEPTH 400

typedef struct {
    PyCodeObject *code; /* borrowed: whoever defines a stack keeps its codes alive */
    int last;           /* the instruction at work in it */
} Place;

typedef struct {
    uint64_t hash;
    Place *places; /* NULL: this slot is free */
    int count;
    long number;
} Slot;

typedef struct {
    PyObject_HEAD
    PyObject *define; /* called with the innermost frame of a new stack, gives its number */
    Slot *slots;
    size_t size, used; /* size is a power of two */
} Stacks;

static inline int
last_instruction(PyFrameObject *frame)
{
#if PY_VERSION_HEX < 0x030B0000
    return frame->f_lasti;
#else
    return PyFrame_GetLasti(frame);
#endif
}

/* Fills `walked`, which has room for DEPTH places; the number of places. */
static int
walk(Place *walked, uint64_t *hash)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    int count = 0;
    uint64_t stirred = 0;
    while (frame != NULL && count < DEPTH) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        Py_DECREF(code); /* the frame holds it */
        Place *place = &walked[count++];
        memset(place, 0, sizeof *place); /* keys are compared byte by byte */
        place->code = code;
        place->last = last_instruction(frame);
        stirred = stir(stirred, (uint64_t)(uintptr_t)code ^ ((uint64_t)place->last << 48));
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    *hash = stirred;
    return count;
}

static Slot *
find(Slot *slots, size_t size, uint64_t hash, const Place *places, int count)
{
    for (size_t at = hash & (size - 1);; at = (at + 1) & (size - 1)) {
        Slot *slot = &slots[at];
        if (slot->places == NULL) {
            return slot;
        }
        if (slot->hash == hash && slot->count == count
            && memcmp(slot->places, places, count * sizeof *places) == 0) {
            return slot;
        }
    }
}

static int
grow(Stacks *self)
{
    size_t size = self->size * 2;
    Slot *slots = calloc(size, sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t at = 0; at < self->size; at++) {
        Slot *old = &self->slots[at];
        if (old->places != NULL) {
            *find(slots, size, old->hash, old->places, old->count) = *old;
        }
    }
    free(self->slots);
    self->slots = slots;
    self->size = size;
    return 0;
}

static int
keep(Stacks *self, uint64_t hash, Place *places, int count, long number)
{
    if (self->used * 2 >= self->size && grow(self) < 0) {
        return -1;
    }
    Slot *slot = find(self->slots, self->size, hash, places, count);
    if (slot->places != NULL) { /* defined meanwhile by another thread, which `define` lets run */
        free(places);
        slot->number = number;
        return 0;
    }
    *slot = (Slot){hash, places, count, number};
    self->used++;
    return 0;
}

long
stacks_number(PyObject *object)
{
    Stacks *self = (Stacks *)object;
    uint64_t hash;
    Place walked[DEPTH];
    int count = walk(walked, &hash);
    Slot *slot = find(self->slots, self->size, hash, walked, count);
    if (slot->places != NULL) {
        return slot->number;
    }
    Place *places = malloc((count + 1) * sizeof *places);
    if (places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(places, walked, count * sizeof *places);
    PyFrameObject *frame = PyEval_GetFrame();
    PyObject *made = PyObject_CallOneArg(self->define, frame ? (PyObject *)frame : Py_None);
    long number = made == NULL ? -1 : PyLong_AsLong(made);
    Py_XDECREF(made);
    if (PyErr_Occurred() || keep(self, hash, places, count, number) < 0) {
        free(places);
        return -1;
    }
    return number;
}

/* number(): of the caller's stack. */
static PyObject *
stacks_number_method(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    long number = stacks_number(object);
    return number == -1 && PyErr_Occurred() ? NULL : PyLong_FromLong(number);
}

static void
forget(Stacks *self)
{
    for (size_t at = 0; at < self->size; at++) {
        free(self->slots[at].places);
        self->slots[at].places = NULL;
    }
    self->used = 0;
}

/* clear(): forget all stacks. */
static PyObject *
stacks_clear(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    forget((Stacks *)object);
    Py_RETURN_NONE;
}

static int
stacks_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Stacks *self = (Stacks *)object;
    PyObject *define;
    if (self->define != NULL || kwargs != NULL) {
        PyErr_SetString(PyExc_TypeError, "Stacks takes (define), once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "O", &define)) {
        return -1;
    }
    self->size = 1024;
    self->slots = calloc(self->size, sizeof *self->slots);
    if (self->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->define = Py_NewRef(define);
    return 0;
}

static int
stacks_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Stacks *)object)->define);
    return 0;
}

static int
stacks_unlink(PyObject *object)
{
    Py_CLEAR(((Stacks *)object)->define);
    return 0;
}

static void
stacks_dealloc(PyObject *object)
{
    Stacks *self = (Stacks *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    stacks_unlink(object);
    if (self->slots != NULL) {
        forget(self);
    }
    free(self->slots);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef stacks_methods[] = {
    {"number", stacks_number_method, METH_NOARGS, "Number of the calling thread's Python stack."},
    {"clear", stacks_clear, METH_NOARGS, "Forget all stacks."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot stacks_slots[] = {
    {Py_tp_doc, "Numbers of Python stacks; Stacks(define)."},
    {Py_tp_init, stacks_init},
    {Py_tp_traverse, stacks_traverse},
    {Py_tp_clear, stacks_unlink},
    {Py_tp_dealloc, stacks_dealloc},
    {Py_tp_methods, stacks_methods},
    {0, NULL},
};

PyType_Spec streamsan_stacks_spec = {
    .name = "streamsan.record._compiled.Stacks",
    .basicsize = sizeof(Stacks),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = stacks_slots,
};
