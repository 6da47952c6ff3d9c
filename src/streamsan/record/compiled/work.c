/* What a thread is at, and blocks of device memory: structures that Python shares. */

#include "work.h"
#include <stdlib.h>
#include <structmember.h>

PyTypeObject *work_type, *born_type;

static int
work_init(PyObject *object, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Work *self = (Work *)object;
    PyObject *operands = PyFrozenSet_New(NULL);
    if (operands == NULL) {
        return -1;
    }
    Py_XSETREF(self->operands, operands);
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
    Py_VISIT(((Work *)object)->caller);
    return 0;
}

static int
work_unlink(PyObject *object)
{
    Py_CLEAR(((Work *)object)->inside);
    Py_CLEAR(((Work *)object)->body);
    Py_CLEAR(((Work *)object)->operands);
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
    work_unlink(object);
    free(((Work *)object)->accesses.data);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef work_members[] = {
    {"inside", T_OBJECT, offsetof(Work, inside), 0, NULL},
    {"body", T_OBJECT, offsetof(Work, body), 0, NULL},
    {"operands", T_OBJECT, offsetof(Work, operands), 0, NULL},
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

PyObject *
new_born(long owner, long thread, long stack, long graph, int backward)
{
    Born *made = (Born *)born_type->tp_alloc(born_type, 0);
    if (made != NULL) {
        made->owner = owner;
        made->thread = thread;
        made->stack = stack;
        made->graph = graph;
        made->number = made->device = NONE;
        made->backward = (char)backward;
    }
    return (PyObject *)made;
}

static PyObject *
born_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    long owner, thread, stack, graph;
    int backward;
    if (!PyArg_ParseTuple(args, "llllp", &owner, &thread, &stack, &graph, &backward)) {
        return NULL;
    }
    return new_born(owner, thread, stack, graph, backward);
}

/* The set of streams, which few are ever asked for. */
static PyObject *
born_users(PyObject *object, void *Py_UNUSED(closure))
{
    Born *self = (Born *)object;
    if (self->users == NULL) {
        PyObject *number = PyLong_FromLong(self->owner);
        PyObject *users = number == NULL ? NULL : PySet_New(NULL);
        if (users != NULL && PySet_Add(users, number) < 0) {
            Py_CLEAR(users);
        }
        Py_XDECREF(number);
        self->users = users;
    }
    return Py_XNewRef(self->users);
}

int
add_user(Born *self, PyObject *stream)
{
    if (self->users == NULL && PyLong_AsLong(stream) == self->owner) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *users = born_users((PyObject *)self, NULL);
    int known = users == NULL ? -1 : PySet_Contains(users, stream);
    int status = known ? -(known < 0) : PySet_Add(users, stream) < 0 ? -1 : 1;
    Py_XDECREF(users);
    return status;
}

static void
born_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((Born *)object)->users);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef born_members[] = {
    {"owner", T_LONG, offsetof(Born, owner), 0, NULL},
    {"thread", T_LONG, offsetof(Born, thread), 0, NULL},
    {"stack", T_LONG, offsetof(Born, stack), 0, NULL},
    {"graph", T_LONG, offsetof(Born, graph), 0, NULL},
    {"number", T_LONG, offsetof(Born, number), 0, NULL},
    {"device", T_LONG, offsetof(Born, device), 0, NULL},
    {"size", T_PYSSIZET, offsetof(Born, size), 0, NULL},
    {"backward", T_BOOL, offsetof(Born, backward), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef born_getset[] = {
    {"users", born_users, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot born_slots[] = {
    {Py_tp_doc, "A device block that an allocator handed out."},
    {Py_tp_new, born_new},
    {Py_tp_dealloc, born_dealloc},
    {Py_tp_getset, born_getset},
    {Py_tp_members, born_members},
    {0, NULL},
};

PyType_Spec streamsan_born_spec = {
    .name = "streamsan.record._compiled.Born",
    .basicsize = sizeof(Born),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = born_slots,
};
