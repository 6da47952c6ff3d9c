/* What a recording works with. */

#ifndef STREAMSAN_RECORDING_H
#define STREAMSAN_RECORDING_H

#include "accesses.h"
#include "bridge.h"
#include "outlet.h"
#include "work.h"

/* By the names of `Parts` in streamsan/record/_core.py, which says what each is. */
#define PARTS(X)                                                                                   \
    X(accesses) X(outlet) X(threads) X(observer) X(captures) X(known) X(current) X(blocks)         \
    X(allocator) X(handed_out) X(allocated) X(seen) X(in_flight) X(give_up) X(next_number)         \
    X(stacks) X(user_stacks) X(callers) X(thread) X(error) X(node) X(device) X(raw_stream)         \
    X(grad) X(notes) X(sequence) X(note) X(emit) X(begin) X(synchronized) X(partial)               \
    X(operation) X(alloc) X(free)

#define PART_FIELD(name) PyObject *name;

enum {
    WORK, UNTYPED_STORAGE, DATA_PTR, NBYTES, SEQUENCE_NR, UNTRACED, NAME, RUN, ALLOCATOR, NAME_COUNT
};

/* A stream by torch's id, and its timeline. */
typedef struct {
    int64_t id;
    int device, known; /* `known`: whether there is one here */
    long timeline;
} KnownStream;

/* A page of memory, and the stream that it was last found to serve: see cuda/_cache.py. */
typedef struct {
    uint64_t page; /* 0: none */
    long owner;
} KnownPage;

enum { KNOWN_STREAMS = 64, KNOWN_PAGES = 1 << 16 }; /* powers of two; the pages are 128 GiB */

typedef struct {
    PyObject_HEAD
    struct {
        PARTS(PART_FIELD)
    } parts;
    PyObject *names[NAME_COUNT]; /* of attributes */
    int enabled;                 /* false in a forked child */
    int divided;                 /* whether the default stream may be that of a green context */
    uint64_t serial;             /* among all recordings of this process */
    const Current *current;      /* NULL: Python's functions of torch are asked */
    KnownStream streams[KNOWN_STREAMS];
    KnownPage *pages; /* by their numbers' last bits */
} Recording;

/* Its live blocks of devices. */
static inline LiveBlocks *
blocks_of(Recording *self)
{
    return (LiveBlocks *)self->parts.blocks;
}

extern PyTypeObject *recording_type, *operator_type, *running_type;

/* The calling thread's work, a new reference. */
Work *work_of_thread(Recording *self);

/* The thread and the stack to report. -1 with an exception, as all of these. */
int where(Recording *self, Work *work, long *thread, long *stack);

/* Have the work remember the backward node of that name and number as the one at work. */
int meet_node(Recording *self, Work *work, const char *node, int64_t number);

/* The same for the one that torch says is at work; 1 if there is one, else 0. */
int running(Recording *self, Work *work);

/* Timeline of the calling thread's current stream of a device. */
long current_timeline(Recording *self, int device);

/* Whether anything is to be recorded now. */
static inline int
is_on(Recording *self)
{
    return self->enabled && ((Outlet *)self->parts.outlet)->recording;
}

/* The method `begin` of a recording. */
PyObject *recording_begin(PyObject *object, PyObject *const *args, Py_ssize_t count);

/* The allocator has handed out the block at an address, or taken it back. No exception is left but
 * the program's. */
void was_allocated(Recording *self, uint64_t address);
void was_freed(Recording *self, uint64_t address);

/* The calling thread's current device, and whether a backward node is at work in it. -1 with an
 * exception. */
int current_device(Recording *self);
int in_backward(Recording *self);

/* Whether a graph is being captured. */
static inline int
captures(Recording *self)
{
    return PyList_GET_SIZE(self->parts.captures) > 0;
}

/* Note where the node comes from that the operator at work makes. */
int note(Recording *self, Work *work);

/* The same, where the number of the node is known. */
int note_node(Recording *self, Work *work, int64_t number);

/* Whether there are blocks that the allocator tells nothing of. */
int has_untraced(Recording *self);

/* Report a block of so many bytes, which has not been reported yet. */
int report_block(Recording *self, Born *born, uint64_t address, long device, Py_ssize_t size);

/* Tell the observer of the exception, which is gone then. */
void tell_error(Recording *self);

#endif
