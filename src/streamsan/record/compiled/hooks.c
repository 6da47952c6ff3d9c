/* Putting hooks in the places of functions. Only objects are changed (types, method descriptors,
 * functions, ufuncs), never the tables of a library, which may lie in memory that is not to be
 * written. */

#include "arrays.h"

/* A function for each hook: what is called does not tell as what it was called. */
#define SIXTEEN(X, n)                                                                              \
    X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)                                \
    X(n##8) X(n##9) X(n##a) X(n##b) X(n##c) X(n##d) X(n##e) X(n##f)
#define ALL(X)                                                                                     \
    SIXTEEN(X, 0x0) SIXTEEN(X, 0x1) SIXTEEN(X, 0x2) SIXTEEN(X, 0x3)                                \
    SIXTEEN(X, 0x4) SIXTEEN(X, 0x5) SIXTEEN(X, 0x6) SIXTEEN(X, 0x7)
#define MOST_HOOKS 128
#define DEFINE(n)                                                                                  \
    static void *hook_##n(void *a, void *b, void *c, void *d)                                      \
    {                                                                                              \
        return hook_run(&hooks[n], a, b, c, d);                                                    \
    }
#define NAME(n) hook_##n,

static Hook hooks[MOST_HOOKS];
static int hook_count;
ALL(DEFINE)
static const Function functions[MOST_HOOKS] = {ALL(NAME)};

/* The hook of a function, made where there is none yet; NULL with an exception. */
static Hook *
hook_for(Function original, Call call, PyObject *name, int shares, int lends)
{
    for (int i = 0; i < hook_count; i++) {
        if (hooks[i].original == original || functions[i] == original) {
            return &hooks[i];
        }
    }
    if (hook_count == MOST_HOOKS) {
        PyErr_SetString(PyExc_OverflowError, "more functions of arrays than there is room for");
        return NULL;
    }
    Hook *hook = &hooks[hook_count++];
    *hook = (Hook){original, call, shares, lends, Py_NewRef(name), {NULL, NULL, 0, NULL}};
    return hook;
}

static Function
standing_for(const Hook *hook)
{
    return functions[hook - hooks];
}

/* hook_method(method, name, shares, lends): a method of a type or a function of a module. */
PyObject *
hook_method(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *object, *name;
    int shares, lends;
    if (!PyArg_ParseTuple(given, "OUpp", &object, &name, &shares, &lends)) {
        return NULL;
    }
    PyMethodDef **place = PyObject_TypeCheck(object, &PyMethodDescr_Type)
                              ? &((PyMethodDescrObject *)object)->d_method
                          : PyCFunction_Check(object) ? &((PyCFunctionObject *)object)->m_ml
                                                      : NULL;
    static const struct {
        int flags;
        Call call;
    } calls[] = {
        {METH_NOARGS, CALL_ALONE},
        {METH_O, CALL_OBJECT},
        {METH_VARARGS, CALL_TUPLE},
        {METH_VARARGS | METH_KEYWORDS, CALL_KEYWORDS},
        {METH_FASTCALL, CALL_VALUES},
        {METH_FASTCALL | METH_KEYWORDS, CALL_NAMES},
    };
    for (size_t i = 0; place != NULL && i < Py_ARRAY_LENGTH(calls); i++) {
        if ((*place)->ml_flags == calls[i].flags) {
            Function original = (Function)(void *)(*place)->ml_meth;
            Hook *hook = hook_for(original, calls[i].call, name, shares, lends);
            if (hook == NULL) {
                return NULL;
            }
            if (hook->method.ml_name == NULL) {
                hook->method = **place;
                hook->method.ml_meth = (PyCFunction)(void *)standing_for(hook);
            }
            *place = &hook->method;
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

/* The place of a function in a type, by the name of its field; NULL where the type has none. A table
 * of functions becomes a copy, the type's own. */
static Function *
place_in(PyTypeObject *type, const char *field, Call *call)
{
#define IN_TABLE(table, Kind, field, call)                                                         \
    {#field, call, offsetof(PyTypeObject, table), sizeof(Kind), offsetof(Kind, field)}
    static const struct {
        const char *field;
        Call call;
        size_t table, size, offset;
    } places[] = {
        IN_TABLE(tp_as_mapping, PyMappingMethods, mp_subscript, CALL_OBJECT),
        IN_TABLE(tp_as_mapping, PyMappingMethods, mp_ass_subscript, CALL_STORE),
        IN_TABLE(tp_as_sequence, PySequenceMethods, sq_item, CALL_INDEX),
        IN_TABLE(tp_as_number, PyNumberMethods, nb_bool, CALL_NUMBER),
        IN_TABLE(tp_as_number, PyNumberMethods, nb_int, CALL_ALONE),
        IN_TABLE(tp_as_number, PyNumberMethods, nb_float, CALL_ALONE),
        IN_TABLE(tp_as_number, PyNumberMethods, nb_index, CALL_ALONE),
        IN_TABLE(tp_as_buffer, PyBufferProcs, bf_getbuffer, CALL_BUFFER),
        {"tp_richcompare", CALL_OBJECT, offsetof(PyTypeObject, tp_richcompare), 0, 0},
        {"tp_iter", CALL_ALONE, offsetof(PyTypeObject, tp_iter), 0, 0},
    };
    for (size_t i = 0; i < Py_ARRAY_LENGTH(places); i++) {
        if (strcmp(field, places[i].field) != 0) {
            continue;
        }
        *call = places[i].call;
        void *place = (char *)type + places[i].table;
        if (places[i].size == 0) {
            return place;
        }
        char **table = place;
        char *copy = *table == NULL ? NULL : PyMem_Malloc(places[i].size);
        if (copy == NULL) {
            return NULL;
        }
        *table = memcpy(copy, *table, places[i].size); /* for as long as the type is there */
        return (Function *)(void *)(copy + places[i].offset);
    }
    return NULL;
}

/* The attribute of a type that calls what a field has, by the name of a hook: subclasses take their
 * fields from it. */
static PyWrapperDescrObject *
wrapper_of(PyObject *type, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    const char *dot = text == NULL ? NULL : strrchr(text, '.');
    PyObject *found = dot == NULL ? NULL : PyObject_GetAttrString(type, dot + 1);
    PyErr_Clear();
    if (found != NULL && !Py_IS_TYPE(found, &PyWrapperDescr_Type)) {
        Py_CLEAR(found);
    }
    return (PyWrapperDescrObject *)found;
}

/* Put a hook in a place; whether there was something to be hooked. */
static PyObject *
put(Function *place, Call call, PyObject *name, int shares)
{
    if (place == NULL || *place == NULL) {
        Py_RETURN_FALSE;
    }
    const Hook *hook = hook_for(*place, call, name, shares, 0);
    if (hook == NULL) {
        return NULL;
    }
    *place = standing_for(hook);
    Py_RETURN_TRUE;
}

/* hook_field(type, field, name, shares): a function that a type has in a field. The name ends with a
 * dot and what Python calls it. */
PyObject *
hook_field(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *type, *name;
    const char *field;
    int shares;
    if (!PyArg_ParseTuple(given, "O!sUp", &PyType_Type, &type, &field, &name, &shares)) {
        return NULL;
    }
    Call call = CALL_ALONE;
    Function *place = place_in((PyTypeObject *)type, field, &call);
    Function original = place == NULL ? NULL : *place;
    PyObject *done = put(place, call, name, shares);
    if (done != Py_True) {
        return done;
    }
    PyWrapperDescrObject *wrapper = wrapper_of(type, name);
    if (wrapper != NULL && wrapper->d_wrapped == (void *)original) {
        wrapper->d_wrapped = (void *)*place;
    }
    Py_XDECREF(wrapper);
    PyType_Modified((PyTypeObject *)type);
    return done;
}

/* hook_object(object, name): what is called where an object is, of a type with vectorcall. */
PyObject *
hook_object(PyObject *Py_UNUSED(module), PyObject *given)
{
    PyObject *object, *name;
    if (!PyArg_ParseTuple(given, "OU", &object, &name)) {
        return NULL;
    }
    PyTypeObject *type = Py_TYPE(object);
    if (!PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL)) {
        Py_RETURN_FALSE;
    }
    char *place = (char *)object + type->tp_vectorcall_offset;
    return put((Function *)(void *)place, CALL_NAMES, name, 0);
}
