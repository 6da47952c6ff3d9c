/* The rule of `canonical` in streamsan/model/extent.py, and tuples of integers. */

#include "extents.h"

/* Canonical form of a tensor; 0 where it has no bytes, -1 where this is not for us to say. */
int
canonical(const DLTensor *tensor, Extent *extent)
{
    int bits = tensor->element.bits * tensor->element.lanes;
    if (bits == 0 || bits % 8 || tensor->dims > MOST_DIMS || tensor->strides == NULL) {
        return -1;
    }
    int64_t item = bits / 8, expected = 1;
    extent->address = (int64_t)(intptr_t)tensor->data + (int64_t)tensor->byte_offset;
    extent->outer = 0;
    int at = tensor->dims - 1;
    for (; at >= 0; at--) {
        if (tensor->shape[at] != 1 && tensor->strides[at] != expected) {
            break;
        }
        expected *= tensor->shape[at];
    }
    if (at < 0) { /* dense and in order, by far the most common */
        extent->run = expected * item;
        return expected != 0;
    }
    int64_t sizes[MOST_DIMS], strides[MOST_DIMS];
    int count = 0;
    for (at = 0; at < tensor->dims; at++) {
        int64_t size = tensor->shape[at], stride = tensor->strides[at] * item;
        if (size == 0) {
            return 0;
        }
        if (stride < 0) {
            return -1;
        }
        if (size == 1 || stride == 0) {
            continue;
        }
        int to = count++;
        for (; to > 0 && (strides[to - 1] > stride
                          || (strides[to - 1] == stride && sizes[to - 1] > size)); to--) {
            sizes[to] = sizes[to - 1];
            strides[to] = strides[to - 1];
        }
        sizes[to] = size;
        strides[to] = stride;
    }
    int64_t run = item;
    int outer = 0;
    for (at = 0; at < count; at++) {
        if (outer == 0 && strides[at] <= run) {
            run += strides[at] * (sizes[at] - 1);
        } else if (outer && strides[at] == extent->strides[outer - 1] * extent->sizes[outer - 1]) {
            extent->sizes[outer - 1] *= sizes[at];
        } else {
            extent->sizes[outer] = sizes[at];
            extent->strides[outer++] = strides[at];
        }
    }
    extent->run = run;
    extent->outer = outer;
    return 1;
}

PyObject *
integers(const int64_t *values, int count)
{
    PyObject *made = PyTuple_New(count);
    for (int at = 0; made != NULL && at < count; at++) {
        PyObject *value = PyLong_FromLongLong(values[at]);
        if (value == NULL) {
            Py_CLEAR(made);
        } else {
            PyTuple_SET_ITEM(made, at, value);
        }
    }
    return made;
}
