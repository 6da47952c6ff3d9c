/* What a thread is at: a structure that Python shares. */

#include "work.h"
#include <stdlib.h>
#include <structmember.h>

PyTypeObject *work_type;

static int
work_init(PyObject *object, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Work *self = (Work *)object;
    PyObject *operands = PyFrozenSet_New(NULL), *contexts = PyList_New(0);
    if (operands == NULL || contexts == NULL) {
        Py_XDECREF(operands);
        Py_XDECREF(contexts);
        return -1;
    }
    Py_XSETREF(self->operands, operands);
    Py_XSETREF(self->contexts, contexts);
    self->stack = self->thread = NONE - 2;
    return 0;
}

static int
work_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Work *)object)->inside);
    Py_VISIT(((Work *)object)->body);
    Py_VISIT(((Work *)object)->operands);
    Py_VISIT(((Work *)object)->contexts);
    Py_VISIT(((Work *)object)->caller);
    return 0;
}

static int
work_unlink(PyObject *object)
{
    Py_CLEAR(((Work *)object)->inside);
    Py_CLEAR(((Work *)object)->body);
    Py_CLEAR(((Work *)object)->operands);
    Py_CLEAR(((Work *)object)->contexts);
    Py_CLEAR(((Work *)object)->caller);
    Py_CLEAR(((Work *)object)->node_name);
    Py_CLEAR(((Work *)object)->run);
    return 0;
}

static void
work_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    forget_work((Work *)object);
    work_unlink(object);
    free(((Work *)object)->accesses.data);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef work_members[] = {
    {"inside", T_OBJECT, offsetof(Work, inside), 0, NULL},
    {"body", T_OBJECT, offsetof(Work, body), 0, NULL},
    {"operands", T_OBJECT, offsetof(Work, operands), 0, NULL},
    {"contexts", T_OBJECT, offsetof(Work, contexts), READONLY, NULL},
    {"stack", T_LONG, offsetof(Work, stack), 0, NULL},
    {"thread", T_LONG, offsetof(Work, thread), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot work_slots[] = {
    {Py_tp_doc, "What a thread is at."},
    {Py_tp_init, work_init},
    {Py_tp_traverse, work_traverse},
    {Py_tp_clear, work_unlink},
    {Py_tp_dealloc, work_dealloc},
    {Py_tp_members, work_members},
    {0, NULL},
};

PyType_Spec streamsan_work_spec = {
    .name = "streamsan.record._compiled.Work",
    .basicsize = sizeof(Work),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = work_slots,
};
