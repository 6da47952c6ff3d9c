/* How operators are reported. */

#ifndef STREAMSAN_OPERATOR_H
#define STREAMSAN_OPERATOR_H

#include "bridge.h"
#include "recording.h"

typedef struct {
    PyObject_HEAD
    Recording *recording;
    PyObject *reported; /* the Computation or Copy that this stands for */
    PyObject *places;      /* list */
    PyObject *updating;    /* the same, for a call that updates statistics */
    PyObject *training;    /* the place of the argument that tells whether it does, or None */
    PyObject *kind, *name, *copy; /* of the operation */
    PyObject *result;             /* what the report calls its results */
    int fresh, shares, synchronizes, uninitialized;
    int copies; /* how many arguments a copy has that are tensors; 0: it is no copy */
} Operator;

/* Look at the arguments before it runs: add what they touch, raise *device to where they lie. -1
 * with an exception, as below. */
int operator_look(Operator *self, Work *work, PyObject *args, PyObject *kwargs, PyObject *accesses,
                  int *device);

/* Report it, after it has run. */
int operator_report(Operator *self, Work *work, int device, PyObject *result, PyObject *args,
                    PyObject *kwargs, PyObject *accesses);

/* Whether this is for Python: graphs that are captured, and what custom operators are made of. */
int is_rare(Operator *self, Work *work);

/* Report the operation on a stream, with the node that the work remembers where it is that of one,
 * and the synchronisation that it ends with, if there is one. */
int operator_emit(Operator *self, Work *work, long stream, const Began *began);

/* The operator `op` begins; -1 with an exception, and it has not begun. */
int start(Began *self, Operator *op, Work *work);

/* Keep the exception that looking at the arguments ended with, to be told after the operator. */
void keep_failure(Began *self);

/* What was kept while it ran goes nowhere any more. */
void leave(Began *self);

/* Tell of the exception kept, if there is one; whether there was. */
int has_failed(Began *self);

/* Let happen what was kept while the operator ran; an exception stays what it is. */
void stop(Began *self);

/* Give up all references. */
void clear(Began *self);

/* Call it: operator(call, args, kwargs). */
PyObject *operator_call(PyObject *object, PyObject *given, PyObject *keywords);

#endif
