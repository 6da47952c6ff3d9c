/* What a thread is at, and blocks of device memory: see streamsan/record/_portable.py. */

#ifndef STREAMSAN_WORK_H
#define STREAMSAN_WORK_H

#include "packed.h"

#define NONE -1

typedef struct {
    PyObject_HEAD
    PyObject *inside, *body, *operands;
    long stack, thread; /* below NONE: not known, or not shared */
    /* Remembered between operators: of the backward pass at work, by whom it was called, the thread
     * that this one works for; of the node at work, its name and number, and the stack of its
     * forward operation. */
    PyObject *caller, *node_name;
    long served, node_forward;
    Bytes accesses; /* of the operators at work, packed: the innermost's last */
    /* The thread's own timeline in a recording, and which that is. */
    PyObject *run;
    long own;
    int64_t node_number;
} Work;

typedef struct {
    PyObject_HEAD
    PyObject *users; /* set of streams; NULL: none but the owner */
    long owner, thread, stack, graph, number, device;
    Py_ssize_t size;
    char backward;
} Born;

extern PyTypeObject *work_type, *born_type; /* set when the module is filled */

PyObject *new_born(long owner, long thread, long stack, long graph, int backward);

/* A stream, an int, uses a block: 1 if the allocator did not know, 0 if it did, -1 with an
 * exception. */
int add_user(Born *self, PyObject *stream);

#endif
