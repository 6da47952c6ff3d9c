/* What a thread is at, and blocks of device memory: see streamsan/record/_portable.py. */

#ifndef STREAMSAN_WORK_H
#define STREAMSAN_WORK_H

#include "core.h"

#define NONE -1

typedef struct {
    PyObject_HEAD
    PyObject *inside, *body, *operands;
    long stack, thread; /* below NONE: not known, or not shared */
    /* Remembered between operators: of the backward pass at work, by whom it was called, the thread
     * that this one works for; of the node at work, its type and number, its name and the stack of
     * its forward operation. */
    PyObject *caller, *node_type, *node_number, *node_name, *node_forward;
    long served;
} Work;

typedef struct {
    PyObject_HEAD
    PyObject *users; /* set of streams */
    long owner, thread, stack, graph, number, device;
    Py_ssize_t size;
    char backward;
} Born;

extern PyTypeObject *work_type, *born_type; /* set when the module is filled */

PyObject *new_born(long owner, long thread, long stack, long graph, int backward);

#endif
