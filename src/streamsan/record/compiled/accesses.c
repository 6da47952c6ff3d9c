/* What the tensor arguments of an operator touch, as `Access` records. Tensors of torch describe
 * themselves through DLPack; whatever else comes along is left to a function in Python. */

#include "accesses.h"
#include "outlet.h"
#include <structmember.h>

PyTypeObject *accesses_type;

/* The block that a view's storage starts, borrowed; NULL where there is none, or with an
 * exception. */
static Born *
block_of_storage(Accesses *self, PyObject *tensor)
{
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, self->names[STORAGE]);
    if (storage == NULL) {
        return NULL;
    }
    PyObject *key = PyObject_CallMethodNoArgs(storage, self->names[POINTER]);
    Py_DECREF(storage);
    if (key == NULL) {
        return NULL;
    }
    uint64_t address = PyLong_AsUnsignedLongLong(key);
    Py_DECREF(key);
    return PyErr_Occurred() ? NULL : blocks_at(self->blocks, address);
}

/* Report the block of a tensor, where that is still to do or the block is not known. */
static int
show(Accesses *self, PyObject *tensor, const DLTensor *described)
{
    if (!self->always_seen) {
        Born *born = blocks_at(self->blocks, (uint64_t)(uintptr_t)described->data);
        if (born == NULL) {
            born = block_of_storage(self, tensor);
        }
        if (born == NULL && PyErr_Occurred()) {
            return -1;
        }
        if (born != NULL && born->number != NONE) {
            return 0;
        }
    }
    PyObject *owner = PyLong_FromLong(described->device.index);
    PyObject *done = owner == NULL
        ? NULL
        : PyObject_CallFunctionObjArgs(self->seen, tensor, owner, NULL);
    Py_XDECREF(owner);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
has_own_memory(Accesses *self, PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(self->plain); at++) {
        if (type == PyTuple_GET_ITEM(self->plain, at)) {
            return 1;
        }
    }
    return 0;
}

static int
touch_other(Accesses *self, PyObject *value, int mode, PyObject *argument, PyObject *accesses,
            int *device)
{
    int is_tensor = PyObject_IsInstance(value, self->tensor);
    if (is_tensor <= 0) {
        return is_tensor;
    }
    PyObject *number = PyLong_FromLong(mode);
    PyObject *owner = number == NULL
        ? NULL
        : PyObject_CallFunctionObjArgs(self->other, value, number, argument, accesses, NULL);
    Py_XDECREF(number);
    if (owner == NULL) {
        return -1;
    }
    long where = PyLong_AsLong(owner);
    Py_DECREF(owner);
    if (where == -1 && PyErr_Occurred()) {
        return -1;
    }
    *device = where > *device ? (int)where : *device;
    return 0;
}

PyObject *
new_access(Accesses *self, const Extent *extent, int space, int mode, PyObject *argument)
{
    PyObject *fields[7] = {
        PyLong_FromLong(space), PyLong_FromLongLong(extent->address),
        PyLong_FromLongLong(extent->run), integers(extent->sizes, extent->outer),
        integers(extent->strides, extent->outer), PyLong_FromLong(mode), Py_NewRef(argument),
    };
    return make_record(self->make, fields, 7);
}

/* One tensor: append its access, and raise *device to where it lies. */
static int
touch_one(Accesses *self, PyObject *value, int mode, PyObject *argument, PyObject *accesses,
          int *device)
{
    DLTensor described;
    Extent extent;
    if (!has_own_memory(self, value)) {
        return touch_other(self, value, mode, argument, accesses, device);
    }
    if (self->describe(value, &described) < 0) { /* sparse, for one */
        PyErr_Clear();
        return touch_other(self, value, mode, argument, accesses, device);
    }
    if (described.device.type != self->device_type) {
        return PyDict_GET_SIZE(self->pinned)
            ? touch_other(self, value, mode, argument, accesses, device)
            : 0;
    }
    int bytes = mode ? canonical(&described, &extent) : 0;
    if (bytes < 0 || (bytes > 0 && described.data == NULL)) { /* zeros without memory, for one */
        return touch_other(self, value, mode, argument, accesses, device);
    }
    int index = described.device.index;
    *device = index > *device ? index : *device;
    if (bytes == 0) {
        return 0;
    }
    if (show(self, value, &described) < 0) {
        return -1;
    }
    PyObject *made = new_access(self, &extent, index, mode, argument);
    int status = made == NULL ? -1 : PyList_Append(accesses, made);
    Py_XDECREF(made);
    return status;
}

int
touch(Accesses *self, PyObject *value, int mode, PyObject *argument, PyObject *accesses,
      int *device, int *grad)
{
    if (!PyList_Check(value) && !PyTuple_Check(value)) {
        if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value)) {
            return 0;
        }
        if (grad != NULL && !*grad && PyObject_IsInstance(value, self->tensor) == 1) {
            PyObject *wanted = PyObject_GetAttr(value, self->names[REQUIRES_GRAD]);
            *grad = wanted == Py_True;
            Py_XDECREF(wanted);
        }
        return PyErr_Occurred() ? -1
                                : touch_one(self, value, mode, argument, accesses, device);
    }
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(value); at++) {
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(value, at));
        int nested = PyList_Check(item) || PyTuple_Check(item);
        int status = nested ? 0 : touch(self, item, mode, argument, accesses, device, grad);
        Py_DECREF(item);
        if (status < 0) {
            return -1;
        }
    }
    return 0;
}

/* touch(value, mode, argument, accesses): the highest owner of the tensors in `value`. */
static PyObject *
accesses_touch(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Accesses *self = (Accesses *)object;
    if (count != 4 || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "touch(value, mode, argument, accesses)");
        return NULL;
    }
    int device = self->nowhere;
    int mode = (int)PyLong_AsLong(args[1]);
    if (PyErr_Occurred() || touch(self, args[0], mode, args[2], args[3], &device, NULL) < 0) {
        return NULL;
    }
    return PyLong_FromLong(device);
}

PyObject *
argument_of(PyObject *args, PyObject *kwargs, PyObject *place, PyObject **name, int *mode)
{
    long position = PyLong_AsLong(PyTuple_GET_ITEM(place, 0));
    *name = PyTuple_GET_ITEM(place, 1);
    *mode = (int)PyLong_AsLong(PyTuple_GET_ITEM(place, 2));
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (position >= 0 && position < PyTuple_GET_SIZE(args)) {
        return PyTuple_GET_ITEM(args, position);
    }
    return PyDict_GetItemWithError(kwargs, *name);
}

int
touch_arguments(Accesses *self, PyObject *places, PyObject *args, PyObject *kwargs,
                PyObject *accesses, int *device, int *grad)
{
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(places); at++) {
        PyObject *name, *place = PyList_GET_ITEM(places, at);
        int mode;
        if (!PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 3) {
            PyErr_SetString(PyExc_TypeError, "a place is (position, name, mode)");
            return -1;
        }
        PyObject *value = argument_of(args, kwargs, place, &name, &mode);
        if (PyErr_Occurred()) {
            return -1;
        }
        if (value != NULL && touch(self, value, mode, name, accesses, device, grad) < 0) {
            return -1;
        }
    }
    return 0;
}

/* arguments(places, args, kwargs, accesses, grad): the highest owner, and whether a gradient is
 * wanted of an argument (if `grad`). */
static PyObject *
accesses_arguments(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Accesses *self = (Accesses *)object;
    if (count != 5 || !PyList_Check(args[0]) || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])
        || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "arguments(places, args, kwargs, accesses, grad)");
        return NULL;
    }
    int device = self->nowhere, grad = 0;
    if (touch_arguments(self, args[0], args[1], args[2], args[3], &device,
                        args[4] == Py_True ? &grad : NULL) < 0) {
        return NULL;
    }
    return Py_BuildValue("(iO)", device, grad ? Py_True : Py_False);
}

static int
accesses_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Accesses *self = (Accesses *)object;
    PyObject *make, *tensor, *plain, *other, *pinned, *blocks, *seen, *capsule;
    int always, device_type, nowhere;
    if (self->make != NULL || kwargs != NULL) {
        PyErr_SetString(PyExc_TypeError, "Accesses takes positional arguments, once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OOO!OO!O!OOpii", &make, &tensor, &PyTuple_Type, &plain, &other,
                          &PyDict_Type, &pinned, blocks_type, &blocks, &seen, &capsule, &always,
                          &device_type, &nowhere)) {
        return -1;
    }
    DLPackExchange *exchange = PyCapsule_GetPointer(capsule, DLPACK_CAPSULE);
    if (exchange == NULL) {
        return -1;
    }
    if (exchange->version.major != DLPACK_MAJOR || exchange->describe == NULL) {
        PyErr_SetString(PyExc_ImportError, "this version of DLPack's exchange is not known");
        return -1;
    }
    self->describe = exchange->describe;
    self->always_seen = always;
    self->device_type = device_type;
    self->nowhere = nowhere;
    self->make = Py_NewRef(make);
    self->tensor = Py_NewRef(tensor);
    self->plain = Py_NewRef(plain);
    self->other = Py_NewRef(other);
    self->pinned = Py_NewRef(pinned);
    self->blocks = (LiveBlocks *)Py_NewRef(blocks);
    self->seen = Py_NewRef(seen);
    static const char *const names[] = {"untyped_storage", "data_ptr", "requires_grad"};
    for (int at = 0; at < NAMES; at++) {
        self->names[at] = PyUnicode_InternFromString(names[at]);
        if (self->names[at] == NULL) {
            return -1;
        }
    }
    return 0;
}

static int
accesses_traverse(PyObject *object, visitproc visit, void *arg)
{
    Accesses *self = (Accesses *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->make);
    Py_VISIT(self->tensor);
    Py_VISIT(self->plain);
    Py_VISIT(self->other);
    Py_VISIT(self->pinned);
    Py_VISIT(self->seen);
    return 0;
}

static int
accesses_unlink(PyObject *object)
{
    Accesses *self = (Accesses *)object;
    Py_CLEAR(self->make);
    Py_CLEAR(self->tensor);
    Py_CLEAR(self->plain);
    Py_CLEAR(self->other);
    Py_CLEAR(self->pinned);
    Py_CLEAR(self->blocks);
    Py_CLEAR(self->seen);
    return 0;
}

static void
accesses_dealloc(PyObject *object)
{
    Accesses *self = (Accesses *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    accesses_unlink(object);
    for (int at = 0; at < NAMES; at++) {
        Py_XDECREF(self->names[at]);
    }
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef accesses_methods[] = {
    {"touch", (PyCFunction)(void (*)(void))accesses_touch, METH_FASTCALL,
     "touch(value, mode, argument, accesses): the highest owner of the tensors in `value`."},
    {"arguments", (PyCFunction)(void (*)(void))accesses_arguments, METH_FASTCALL,
     "arguments(places, args, kwargs, accesses, grad): (highest owner, gradient wanted)."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef accesses_members[] = {
    {"seen", T_OBJECT, offsetof(Accesses, seen), 0, "seen(tensor, owner) reports a block."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot accesses_slots[] = {
    {Py_tp_doc, "What tensors touch."},
    {Py_tp_init, accesses_init},
    {Py_tp_traverse, accesses_traverse},
    {Py_tp_clear, accesses_unlink},
    {Py_tp_dealloc, accesses_dealloc},
    {Py_tp_methods, accesses_methods},
    {Py_tp_members, accesses_members},
    {0, NULL},
};

PyType_Spec streamsan_accesses_spec = {
    .name = "streamsan.record._compiled.Accesses",
    .basicsize = sizeof(Accesses),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = accesses_slots,
};
