/* Records of accesses, which a program in its steady state makes again and again. */

#include "accesses.h"
#include <string.h>

static PyObject *
new_record(Accesses *self, const Extent *extent, int space, int mode, PyObject *argument)
{
    PyObject *fields[7] = {
        PyLong_FromLong(space), PyLong_FromLongLong(extent->address),
        PyLong_FromLongLong(extent->run), integers(extent->sizes, extent->outer),
        integers(extent->strides, extent->outer), PyLong_FromLong(mode), Py_NewRef(argument),
    };
    PyObject *made = NULL;
    int complete = 1;
    for (int at = 0; at < 7; at++) {
        complete &= fields[at] != NULL;
    }
    if (complete) {
        made = PyObject_Vectorcall(self->make, fields, 7, NULL);
    }
    for (int at = 0; at < 7; at++) {
        Py_XDECREF(fields[at]);
    }
    return made;
}

static Kept *
kept_slot(Accesses *self, const Extent *extent, int space, int mode, PyObject *argument)
{
    uint64_t hash = stir(extent->address, extent->run);
    hash = stir(hash, (uint64_t)(uintptr_t)argument ^ ((uint64_t)space << 56) ^ mode);
    for (int at = 0; at < extent->outer; at++) {
        hash = stir(hash, extent->sizes[at] ^ (extent->strides[at] << 32));
    }
    return &self->kept[hash & (KEPT - 1)];
}

PyObject *
record_access(Accesses *self, const Extent *extent, int space, int mode, PyObject *argument)
{
    if (extent->outer > KEPT_DIMS) {
        return new_record(self, extent, space, mode, argument);
    }
    Kept *slot = kept_slot(self, extent, space, mode, argument);
    size_t dims = extent->outer * sizeof(int64_t);
    if (slot->record != NULL && slot->address == extent->address && slot->run == extent->run
        && slot->space == space && slot->mode == mode && slot->argument == argument
        && slot->outer == extent->outer && memcmp(slot->sizes, extent->sizes, dims) == 0
        && memcmp(slot->strides, extent->strides, dims) == 0) {
        return Py_NewRef(slot->record);
    }
    PyObject *made = new_record(self, extent, space, mode, argument);
    if (made != NULL) {
        PyObject *old_record = slot->record, *old_argument = slot->argument;
        *slot = (Kept){Py_NewRef(made), Py_NewRef(argument), space, mode, extent->outer,
                       extent->address, extent->run, {0}, {0}};
        memcpy(slot->sizes, extent->sizes, dims);
        memcpy(slot->strides, extent->strides, dims);
        Py_XDECREF(old_record);
        Py_XDECREF(old_argument);
    }
    return made;
}
