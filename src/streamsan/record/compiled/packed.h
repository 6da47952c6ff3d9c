/* Records as bytes: see `Packed` of streamsan/record/_portable.py. */

#ifndef STREAMSAN_PACKED_H
#define STREAMSAN_PACKED_H

#include "extents.h"
#include "outlet.h"

typedef struct {
    PyObject_HEAD
    char *data;
    size_t used, room;
    long count, limit;      /* of records in `data`, and at which of them `full` is called */
    size_t given;           /* bytes of what `whole` gave last */
    long given_count;       /* its records */
    Py_ssize_t most;        /* bytes of a record */
    PyObject *encode, *otherwise, *full;
} Packed;

extern PyTypeObject *packed_type;

/* Bytes that grow; all zero: none. */
typedef struct {
    char *data;
    size_t used, room;
} Bytes;

/* The accesses of an operation, one behind the other; -1 with an exception, as all of these. */
int pack_access(Bytes *to, const Extent *extent, int space, int mode, PyObject *argument);

typedef struct {
    long kind, timeline, thread, stack, copy, forward, context;
    PyObject *name, *node; /* NULL: no node */
    const char *accesses;
    size_t size;
    long count;
} OperationFields;

/* Where the records of an outlet are packed; NULL where they go elsewhere. */
Packed *packed_of(Outlet *outlet);

/* Hand a record on. */
int packed_feed(Packed *self, PyObject *record);

/* The same for records that are made here, under the outlet's lock. An operation gets its number. */
int pack_operation(Outlet *outlet, const OperationFields *fields);
int pack_alloc(Outlet *outlet, const long *before, uint64_t address, int64_t size,
               const long *behind, PyObject *allocator, long graph);
int pack_free(Outlet *outlet, long block, long thread, long stack);

#endif
