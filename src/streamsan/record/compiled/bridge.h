/* What the part of the recorder inside of torch's dispatcher (streamsan/record/dispatch), which is
 * compiled for one torch, says to the compiled core, which knows none. */

#ifndef STREAMSAN_BRIDGE_H
#define STREAMSAN_BRIDGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "dlpack.h"

#define BRIDGE_CAPSULE "streamsan.record._compiled.bridge"
#define BRIDGE_VERSION 2 /* of all that stands here */

/* Types of the devices of tensors described. */
#define DESCRIBED_HOST 1
#define DESCRIBED_DEVICE 2

/* A tensor, of an operator's arguments or results. */
typedef struct {
    DLTensor tensor;
    void *storage; /* where its storage starts */
    int64_t bytes; /* of its storage */
    int place;     /* of the argument among `Operator.places`; for a result, nothing */
} Described;

/* A backward node, at work or made; no `name`: there is none. */
typedef struct {
    const char *name;
    int64_t number; /* its sequence number */
} Node;

/* The arguments of an operator: tensors of devices, whether there are others, and nodes. */
typedef struct {
    const Described *tensors;
    size_t count;
    int hosts;    /* whether there are tensors of the host among them, which are left out */
    int updating; /* the value of `Operator.training` */
    int64_t made; /* sequence number of the node that the operator makes, or -1 */
    Node running; /* the node at work */
} Arguments;

/* An operator that runs: see `Running` of streamsan/record/cuda/_operators.py. */
typedef struct {
    PyObject *op, *work, *accesses, *held;
    PyObject *outer; /* the work's `inside` before */
    PyObject *marks; /* list of blocks that the engine may mark for the stream; NULL: none */
    PyObject *failure[3]; /* the exception that looking at the arguments ended with */
    size_t from;          /* where its accesses begin among those of the work, if they are packed */
    long packed;          /* how many that are */
    long outer_stack, outer_thread;
    int device, backward; /* `backward`: whether a node is at work */
} Began;

typedef enum {
    BEGIN_NOT,       /* nothing is recorded */
    BEGIN_DESCRIBED, /* `done` and `end` are to come */
    BEGIN_IN_PYTHON, /* its arguments are to be shown as objects */
} Beginning;

/* What torch says of the calling thread. */
typedef struct {
    int (*device)(void);             /* its current device; -1: it cannot be told */
    int64_t (*stream)(int device);   /* id of its current stream of a device; -1: as above */
    int (*in_backward)(void);        /* whether a backward node is at work in it */
} Current;

/* All are called with the interpreter lock, and leave no exception but the program's. */
typedef struct {
    int version;
    /* A `Recording` is to ask `current`, which lives as long as the process, instead of Python. */
    void (*ask)(PyObject *recording, const Current *current);
    /* Whether what is done to memory of the host counts; the interpreter lock is not needed. */
    int (*sees_hosts)(PyObject *recording);
    /* The operator `op`, an `Operator`, is about to run. */
    Beginning (*begin)(PyObject *op, const Arguments *arguments, Began *began);
    /* It gave these results, of devices and of the host. */
    void (*done)(Began *began, const Described *results, size_t count);
    /* What happened inside may be reported, whether it gave a result or not. */
    void (*end)(Began *began);
    /* One that touches nothing is at work, which makes the node of a number. */
    void (*note)(PyObject *recording, int64_t number);
    /* The allocator has handed out a block, or taken one back, which a `Recording` is told. */
    void (*allocated)(PyObject *recording, uint64_t address);
    void (*freed)(PyObject *recording, uint64_t address);
} Bridge;

extern const Bridge bridge;

#endif
