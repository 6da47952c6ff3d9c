/* How operators are reported. */

#ifndef STREAMSAN_OPERATOR_H
#define STREAMSAN_OPERATOR_H

#include "recording.h"

typedef struct {
    PyObject_HEAD
    Recording *recording;
    PyObject *reported; /* the Computation or Copy that this stands for */
    PyObject *places;      /* list */
    PyObject *kind, *name, *copy; /* of the operation */
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

/* Call it: operator(call, args, kwargs). */
PyObject *operator_call(PyObject *object, PyObject *given, PyObject *keywords);

#endif
