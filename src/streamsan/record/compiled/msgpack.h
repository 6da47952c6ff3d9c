/* Values in msgpack (https://github.com/msgpack/msgpack/blob/master/spec.md). All functions write
 * behind `to`, where there has to be room, and give where they stopped. */

#ifndef STREAMSAN_MSGPACK_H
#define STREAMSAN_MSGPACK_H

#include <stdint.h>
#include <string.h>

enum { INTEGER = 9, HEAD = 5 }; /* bytes at most: of an integer, and of the head of anything else */

static inline char *
big_endian(char *to, uint64_t value, int bytes)
{
    for (int at = bytes - 1; at >= 0; at--) {
        *to++ = (char)(value >> (8 * at));
    }
    return to;
}

static inline char *
headed(char *to, int head, uint64_t value, int bytes)
{
    *to++ = (char)head;
    return big_endian(to, value, bytes);
}

static inline char *
unsigned_integer(char *to, uint64_t value)
{
    return value < 0x80        ? big_endian(to, value, 1)
        : value <= 0xFF        ? headed(to, 0xCC, value, 1)
        : value <= 0xFFFF      ? headed(to, 0xCD, value, 2)
        : value <= 0xFFFFFFFFu ? headed(to, 0xCE, value, 4)
                               : headed(to, 0xCF, value, 8);
}

static inline char *
integer(char *to, int64_t value)
{
    return value >= 0 ? unsigned_integer(to, (uint64_t)value)
        : value >= -32 ? big_endian(to, (uint64_t)value, 1)
                       : headed(to, 0xD3, (uint64_t)value, 8);
}

static inline char *
array(char *to, size_t count)
{
    return count < 16 ? big_endian(to, 0x90 | count, 1)
        : count <= 0xFFFF ? headed(to, 0xDC, count, 2)
                          : headed(to, 0xDD, count, 4);
}

static inline char *
text(char *to, const char *from, size_t size)
{
    to = size < 32 ? big_endian(to, 0xA0 | size, 1)
        : size <= 0xFF ? headed(to, 0xD9, size, 1)
        : size <= 0xFFFF ? headed(to, 0xDA, size, 2)
                         : headed(to, 0xDB, size, 4);
    memcpy(to, from, size);
    return to + size;
}

#endif
