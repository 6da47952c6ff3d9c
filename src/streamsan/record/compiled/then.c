/* A call, and another one where there is reason for it: `then` of streamsan/record/_portable.py. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *call, *reason, *then;
} Then;

static PyObject *
then_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    Then *self = (Then *)object;
    PyObject *result = PyObject_Call(self->call, args, kwargs);
    if (result == NULL) {
        return NULL;
    }
    Py_DECREF(result);
    Py_ssize_t count = PyObject_Size(self->reason);
    if (count > 0) {
        return PyObject_Call(self->then, args, kwargs);
    }
    return count < 0 ? NULL : Py_NewRef(Py_None);
}

static int
then_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Then *self = (Then *)object;
    PyObject *call, *reason, *then;
    if (!PyArg_ParseTuple(args, "OOO", &call, &reason, &then)) {
        return -1;
    }
    Py_XSETREF(self->call, Py_NewRef(call));
    Py_XSETREF(self->reason, Py_NewRef(reason));
    Py_XSETREF(self->then, Py_NewRef(then));
    return 0;
}

static int
then_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Then *)object)->call);
    Py_VISIT(((Then *)object)->reason);
    Py_VISIT(((Then *)object)->then);
    return 0;
}

static int
then_unlink(PyObject *object)
{
    Py_CLEAR(((Then *)object)->call);
    Py_CLEAR(((Then *)object)->reason);
    Py_CLEAR(((Then *)object)->then);
    return 0;
}

static void
then_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    then_unlink(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyType_Slot then_slots[] = {
    {Py_tp_doc, "Then(call, reason, then): call, and where there is reason for it, then."},
    {Py_tp_init, then_init},
    {Py_tp_call, then_call},
    {Py_tp_traverse, then_traverse},
    {Py_tp_clear, then_unlink},
    {Py_tp_dealloc, then_dealloc},
    {0, NULL},
};

PyType_Spec streamsan_then_spec = {
    .name = "streamsan.record._compiled.Then",
    .basicsize = sizeof(Then),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = then_slots,
};
