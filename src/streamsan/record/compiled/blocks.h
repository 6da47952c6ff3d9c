/* Blocks of device memory: see streamsan/record/_portable.py. */

#ifndef STREAMSAN_BLOCKS_H
#define STREAMSAN_BLOCKS_H

#include "core.h"

#define NONE -1

typedef struct {
    PyObject_HEAD
    PyObject *users; /* set of streams; NULL: none but the owner */
    long owner, thread, stack, graph, number, device;
    Py_ssize_t size;
    char backward;
} Born;

/* A place in the table: free where there is no block. */
typedef struct {
    uint64_t address;
    Born *born;
} BlockSlot;

/* Live blocks by address: open addressing, where what is removed leaves no gap (Knuth, The Art of
 * Computer Programming, volume 3, 6.4, algorithm R). */
typedef struct {
    PyObject_HEAD
    BlockSlot *slots;
    size_t size, used; /* size is a power of two, or 0 */
} LiveBlocks;

extern PyTypeObject *born_type, *blocks_type; /* set when the module is filled */

Born *new_born(long owner, long thread, long stack, long graph, int backward);

/* A stream, an int, uses a block: 1 if the allocator did not know, 0 if it did, -1 with an
 * exception. */
int add_user(Born *self, PyObject *stream);

/* The block at an address, borrowed; NULL: there is none, with no exception. */
Born *blocks_at(const LiveBlocks *self, uint64_t address);

/* Have a block be at an address, in place of any before it; -1 with an exception. */
int blocks_put(LiveBlocks *self, uint64_t address, Born *born);

/* Remove the block at an address: the block, a reference, or NULL, with no exception. */
Born *blocks_take(LiveBlocks *self, uint64_t address);

#endif
