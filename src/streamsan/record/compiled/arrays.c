/* What NumPy's arrays and memoryviews do with memory that is watched: streamsan/record/arrays says
 * what that means.
 *
 * Functions of these types are replaced by ones that call them and, where an argument lies in
 * watched memory, tell of the call. There is no other place to listen: an array that operates on
 * another calls no Python code. Only objects are changed (types, method descriptors, ufuncs), never
 * the tables of a library, which may lie in memory that is not to be written. */

#include "arrays.h"

typedef struct {
    uintptr_t start, end;
} Span;

static Span *spans; /* watched memory, ascending */
static Py_ssize_t span_count;
static PyTypeObject *array_type, *managed_type;
static PyObject *told;
static _Thread_local int telling, lending; /* whether a call is being told of, or lends */

static int
is_watched(uintptr_t address)
{
    Py_ssize_t low = 0, high = span_count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (spans[middle].end <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < span_count && spans[low].start <= address;
}

/* Whether an object is an array or a memoryview whose first element lies in watched memory. */
static int
lies_there(PyObject *object)
{
    if (object == NULL) {
        return 0;
    }
    if (PyObject_TypeCheck(object, array_type)) { /* `data` is the first field of all versions */
        return is_watched((uintptr_t)*(void **)((char *)object + sizeof(PyObject)));
    }
    return PyMemoryView_Check(object)
           && is_watched((uintptr_t)PyMemoryView_GET_BUFFER(object)->buf);
}

/* The same, or a list or tuple with such an object. */
static int
holds(PyObject *object)
{
    if (object == NULL || !(PyTuple_Check(object) || PyList_Check(object))) {
        return lies_there(object);
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); i++) {
        if (lies_there(PySequence_Fast_GET_ITEM(object, i))) {
            return 1;
        }
    }
    return 0;
}

/* Whether a buffer is asked for to be used later: by a function that is known to, or for a
 * memoryview, whose buffer is part of an object. What is in front of the buffer is looked at only
 * within its page, which is there. */
static int
is_lent(const void *buffer)
{
    size_t before = offsetof(_PyManagedBufferObject, master);
    const PyObject *object = (const PyObject *)((const char *)buffer - before);
    return lending || ((uintptr_t)buffer & 0xfff) < before || Py_TYPE(object) == managed_type;
}

/* Arguments with names, as a dict; NULL with an exception. */
static PyObject *
named(PyObject *names, PyObject *const *values)
{
    PyObject *made = PyDict_New();
    for (Py_ssize_t i = 0; made != NULL && i < PyTuple_GET_SIZE(names); i++) {
        if (PyDict_SetItem(made, PyTuple_GET_ITEM(names, i), values[i]) < 0) {
            Py_CLEAR(made);
        }
    }
    return made;
}

/* The arguments of a call behind `self`: a tuple, and a dict or None for those with names; new
 * references, or NULL with an exception. */
static void
gather(Call call, void *b, void *c, void *d, PyObject **args, PyObject **kwargs)
{
    *kwargs = Py_NewRef(Py_None);
    switch (call) {
    case CALL_OBJECT:
        *args = PyTuple_Pack(1, (PyObject *)b);
        break;
    case CALL_STORE:
        *args = PyTuple_Pack(2, (PyObject *)b, c == NULL ? Py_None : (PyObject *)c);
        break;
    case CALL_INDEX:
        *args = Py_BuildValue("(n)", (Py_ssize_t)b);
        break;
    case CALL_BUFFER:
        *args = Py_BuildValue("iO", (int)(intptr_t)c, is_lent(b) ? Py_True : Py_False);
        break;
    case CALL_TUPLE:
    case CALL_KEYWORDS:
        *args = Py_NewRef(b);
        if (call == CALL_KEYWORDS && c != NULL) {
            Py_SETREF(*kwargs, Py_NewRef(c));
        }
        break;
    case CALL_VALUES:
    case CALL_NAMES: {
        PyObject *const *values = b;
        Py_ssize_t count = PyVectorcall_NARGS((size_t)c);
        *args = PyTuple_New(count);
        for (Py_ssize_t i = 0; *args != NULL && i < count; i++) {
            PyTuple_SET_ITEM(*args, i, Py_NewRef(values[i]));
        }
        if (call == CALL_NAMES && d != NULL) {
            Py_SETREF(*kwargs, named(d, values + count));
        }
        break;
    }
    default:
        *args = PyTuple_New(0);
    }
}

/* Whether any argument lies in watched memory. */
static int
concerns(Call call, PyObject *self, void *b, void *c, void *d)
{
    if (holds(self)) {
        return 1;
    }
    PyObject *const *values = NULL;
    Py_ssize_t count = 0;
    switch (call) {
    case CALL_OBJECT:
        return holds(b);
    case CALL_STORE:
        return holds(c);
    case CALL_TUPLE:
    case CALL_KEYWORDS:
        values = &PyTuple_GET_ITEM((PyObject *)b, 0);
        count = PyTuple_GET_SIZE((PyObject *)b);
        break;
    case CALL_VALUES:
    case CALL_NAMES:
        values = b;
        count = PyVectorcall_NARGS((size_t)c);
        if (call == CALL_NAMES && d != NULL) {
            count += PyTuple_GET_SIZE((PyObject *)d);
        }
        break;
    default:
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (holds(values[i])) {
            return 1;
        }
    }
    if (call == CALL_KEYWORDS && c != NULL) {
        PyObject *value;
        for (Py_ssize_t at = 0; PyDict_Next((PyObject *)c, &at, NULL, &value);) {
            if (holds(value)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Tell of a call; -1 with an exception, which is none of ours: an interrupt. */
static int
tell(const Hook *hook, PyObject *self, void *b, void *c, void *d)
{
    PyObject *args, *kwargs, *outcome = NULL;
    gather(hook->call, b, c, d, &args, &kwargs);
    if (args != NULL && kwargs != NULL) {
        telling = 1;
        outcome = PyObject_CallFunctionObjArgs(told, hook->name, self, args, kwargs, NULL);
        telling = 0;
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    Py_XDECREF(outcome);
    return outcome == NULL ? -1 : 0;
}

/* Call the original with the arguments of a call, which are pointers or as wide as one: those that
 * it does not take are left over in their registers. */
void *
hook_run(const Hook *hook, void *a, void *b, void *c, void *d)
{
    lending += hook->lends;
    void *result = hook->original(a, b, c, d);
    lending -= hook->lends;
    int number = hook->call >= CALL_NUMBER;
    if (span_count == 0 || telling || (number ? (int)(intptr_t)result < 0 : result == NULL)
        || !concerns(hook->call, a, b, c, d) || (hook->shares && lies_there(result))) {
        return result;
    }
    if (tell(hook, a == NULL ? Py_None : a, b, c, d) == 0) {
        return result;
    }
    if (hook->call == CALL_BUFFER) {
        PyBuffer_Release(b);
    }
    if (number) {
        return (void *)(intptr_t)-1;
    }
    Py_DECREF((PyObject *)result);
    return NULL;
}

/* watch_arrays(array, managed, told): listen to `array`, which is numpy.ndarray; `managed` is the
 * type of what memoryviews of one buffer share. Where a call that is listened to has an argument in
 * watched memory, told(name, self, args, kwargs) is called after it. */
PyObject *
arrays_watch(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *array, *managed, *call;
    if (!PyArg_ParseTuple(given, "O!O!O", &PyType_Type, &array, &PyType_Type, &managed, &call)) {
        return NULL;
    }
    Py_XSETREF(array_type, (PyTypeObject *)Py_NewRef(array));
    Py_XSETREF(managed_type, (PyTypeObject *)Py_NewRef(managed));
    Py_XSETREF(told, Py_NewRef(call));
    Py_RETURN_NONE;
}

/* watch_memory(spans): the memory to watch, as a list of pairs of addresses (first byte, and behind
 * the last), ascending and apart. */
PyObject *
arrays_watch_memory(PyObject *Py_UNUSED(module), PyObject *list)
{
    if (!PyList_Check(list)) {
        return PyErr_Format(PyExc_TypeError, "a list is wanted, not %R", list);
    }
    Py_ssize_t count = PyList_GET_SIZE(list);
    Span *made = PyMem_New(Span, count);
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long start, end;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "KK", &start, &end)) {
            PyMem_Free(made);
            return NULL;
        }
        made[i] = (Span){(uintptr_t)start, (uintptr_t)end};
    }
    PyMem_Free(spans);
    spans = made;
    span_count = count;
    Py_RETURN_NONE;
}
