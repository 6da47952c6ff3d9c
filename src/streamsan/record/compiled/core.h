/* What the parts of the compiled core share. Only CPython's public interface, and DLPack's. */

#ifndef STREAMSAN_CORE_H
#define STREAMSAN_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

extern PyType_Spec streamsan_stacks_spec, streamsan_accesses_spec, streamsan_work_spec,
    streamsan_born_spec, streamsan_blocks_spec, streamsan_outlet_spec, streamsan_recording_spec, streamsan_operator_spec,
    streamsan_running_spec, streamsan_packed_spec, streamsan_then_spec;

extern PyTypeObject *stacks_type;

/* Number of the calling thread's stack; -1 with an exception, or as it was defined. */
long stacks_number(PyObject *stacks);

/* Stirs a value into a hash: the multiply and shift of a xorshift-multiply generator. */
static inline uint64_t
stir(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

#endif
