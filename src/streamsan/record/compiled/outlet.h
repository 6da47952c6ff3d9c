/* The way out for records, under the lock of the recording. */

#ifndef STREAMSAN_OUTLET_H
#define STREAMSAN_OUTLET_H

#include "core.h"

typedef struct {
    PyObject_HEAD
    unsigned long owner; /* the thread that holds the lock, where depth is not 0 */
    long depth;
    PyThread_type_lock gate; /* what threads wait at for that; it is open for one of them at a time */
    long waiting;            /* how many of them there are */
    int open;
    PyObject *postponed; /* list of work for when the lock is next free */
    PyObject *sink;      /* NULL: nothing is recorded */
    PyObject *behind;    /* list of records that came out of the handling of another */
    int busy;
    char recording;     /* whether a recording is under way */
    long long sequence; /* of the last operation */
} Outlet;

extern PyTypeObject *outlet_type;

/* A record of a kind, of so many fields, references that are taken over, or NULL with an exception
 * in place of one. NULL with an exception. */
PyObject *make_record(PyObject *kind, PyObject **fields, int count);

/* Take and leave the lock; -1 with an exception of postponed work, and the lock is not held. */
int outlet_enter(Outlet *self);
int outlet_leave(Outlet *self);

/* Hand a record to the sink, within the lock; -1 with an exception. */
int outlet_hand_on(Outlet *self, PyObject *record);

/* The same, with the lock taken for it. */
int outlet_emit(Outlet *self, PyObject *record);

#endif
