/* What a thread is at: see streamsan/record/_portable.py. */

#ifndef STREAMSAN_WORK_H
#define STREAMSAN_WORK_H

#include "blocks.h"
#include "packed.h"

typedef struct {
    PyObject_HEAD
    PyObject *inside, *body, *operands;
    PyObject *contexts; /* list */
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

extern PyTypeObject *work_type; /* set when the module is filled */

/* A work is no more: see `work_of_thread`. */
void forget_work(const Work *work);

#endif
