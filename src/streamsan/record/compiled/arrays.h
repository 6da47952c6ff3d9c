/* Functions of NumPy and of memoryview that are listened to. */

#ifndef STREAMSAN_ARRAYS_H
#define STREAMSAN_ARRAYS_H

#include "core.h"

#include <stddef.h>

/* How a function is called, and what it answers: an object, unless it is said to be a number. */
typedef enum {
    CALL_ALONE,    /* (self) */
    CALL_OBJECT,   /* (self, object), and what else there may be */
    CALL_INDEX,    /* (self, index) */
    CALL_TUPLE,    /* (self, args) */
    CALL_KEYWORDS, /* (self, args, kwargs) */
    CALL_VALUES,   /* (self, values, count) */
    CALL_NAMES,    /* (self, values, count, names) */
    CALL_NUMBER,   /* (self), a number below 0 for failure; so have the next two */
    CALL_STORE,    /* (self, key, value) */
    CALL_BUFFER,   /* (self, buffer, flags) */
} Call;

typedef void *(*Function)(void *, void *, void *, void *);

typedef struct {
    Function original;
    Call call;
    int shares; /* a result in watched memory is a view, and nothing was read */
    int lends;  /* buffers that it asks for are for later */
    PyObject *name;
    PyMethodDef method; /* of a method or function: what stands for the original's */
} Hook;

/* Call what a hook stands for. */
void *hook_run(const Hook *hook, void *a, void *b, void *c, void *d);

/* Functions of the module. */
PyObject *hook_method(PyObject *module, PyObject *given);
PyObject *hook_field(PyObject *module, PyObject *given);
PyObject *hook_object(PyObject *module, PyObject *given);
PyObject *arrays_watch(PyObject *module, PyObject *given);
PyObject *arrays_watch_memory(PyObject *module, PyObject *list);

#endif
