/* The bytes of strided tensors. */

#ifndef STREAMSAN_EXTENTS_H
#define STREAMSAN_EXTENTS_H

#include "core.h"
#include "dlpack.h"

#define MOST_DIMS 64 /* of any tensor */

/* Bytes of a strided tensor in canonical form: see streamsan/model/extent.py. */
typedef struct {
    int64_t address, run;
    int outer;
    int64_t sizes[MOST_DIMS], strides[MOST_DIMS];
} Extent;

/* Canonical form of a tensor; 0 where it has no bytes, -1 where this is not for us to say. */
int canonical(const DLTensor *tensor, Extent *extent);

/* A tuple of `count` integers, or NULL with an exception. */
PyObject *integers(const int64_t *values, int count);

#endif
