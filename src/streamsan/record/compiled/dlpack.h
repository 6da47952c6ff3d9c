/* The part of DLPack's C interface that is used here (https://dmlc.github.io/dlpack, version 1):
 * how a framework describes a tensor of its own without handing it over. */

#ifndef STREAMSAN_DLPACK_H
#define STREAMSAN_DLPACK_H

#include <stdint.h>

#define DLPACK_MAJOR 1
#define DLPACK_CAPSULE "dlpack_exchange_api"

typedef struct {
    void *data;
    struct {
        int32_t type; /* 1: host memory, 2: CUDA, 10: ROCm */
        int32_t index;
    } device;
    int32_t dims;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } element;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} DLTensor;

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *older;
    void *allocate, *give, *take; /* of tensors that are handed over */
    int (*describe)(void *tensor, DLTensor *out); /* NULL: not supported. -1: Python exception */
    void *current_stream;
} DLPackExchange;

#endif
