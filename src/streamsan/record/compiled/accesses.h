/* What tensors touch. */

#ifndef STREAMSAN_ACCESSES_H
#define STREAMSAN_ACCESSES_H

#include "blocks.h"
#include "extents.h"

enum { STORAGE, POINTER, REQUIRES_GRAD, NAMES };

typedef struct {
    PyObject_HEAD
    PyObject *make;    /* the class of the records */
    PyObject *tensor;  /* torch.Tensor */
    PyObject *plain;   /* tuple of its classes whose objects have memory of their own */
    PyObject *other;   /* other(tensor, mode, argument, accesses) does what touch() does */
    PyObject *pinned;  /* dict: pinned host blocks by address */
    LiveBlocks *blocks; /* of devices; `number` is NONE till they are reported */
    PyObject *seen;    /* seen(tensor, owner) reports a block */
    PyObject *names[NAMES];
    int always_seen;   /* seen() is to be called for each tensor */
    int device_type, nowhere;
    int (*describe)(void *, DLTensor *);
} Accesses;

extern PyTypeObject *accesses_type;

/* The record of an access, a new reference; NULL with an exception. */
PyObject *new_access(Accesses *self, const Extent *extent, int space, int mode,
                     PyObject *argument);

/* Append to the list `accesses` what a tensor touches, or each of a list or tuple of some, and
 * raise *device to where they lie; anything else has no bytes. `grad`, unless NULL, becomes 1 where
 * a gradient is wanted of one. -1 with an exception. */
int touch(Accesses *self, PyObject *value, int mode, PyObject *argument, PyObject *accesses,
          int *device, int *grad);

/* The argument of an operator at a place, of a `Plan`; borrowed. NULL where it is left out, or with
 * an exception. *name and *mode become those of the place. */
PyObject *argument_of(PyObject *args, PyObject *kwargs, PyObject *place, PyObject **name,
                      int *mode);

/* The same as `touch` for the arguments of an operator; `places` are those of a `Plan`. */
int touch_arguments(Accesses *self, PyObject *places, PyObject *args, PyObject *kwargs,
                    PyObject *accesses, int *device, int *grad);

#endif
