/* streamsan.record._compiled: the parts of the recorder that run for each operator.
 * streamsan/record/_portable.py says the same in Python, and stands in where this is not built. */

#include "bridge.h"
#include "arrays.h"
#include "packed.h"
#include "recording.h"

#ifndef STREAMSAN_SOURCES /* a number for these sources: see streamsan/record/_built.py */
#define STREAMSAN_SOURCES 0u
#endif

/* Add a type to the module, which keeps it; *type, unless NULL, becomes it. */
static int
add(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    PyObject *made = PyType_FromSpec(spec);
    if (made == NULL || PyModule_AddType(module, (PyTypeObject *)made) < 0) {
        Py_XDECREF(made);
        return -1;
    }
    if (type != NULL) {
        *type = (PyTypeObject *)Py_NewRef(made); /* C code compares with it as long as it runs */
    }
    Py_DECREF(made);
    return 0;
}

static int
fill(PyObject *module)
{
    PyObject *sources = PyLong_FromUnsignedLong(STREAMSAN_SOURCES);
    int status = sources == NULL ? -1 : PyModule_AddObjectRef(module, "SOURCES", sources);
    Py_XDECREF(sources);
    PyObject *capsule = PyCapsule_New((void *)&bridge, BRIDGE_CAPSULE, NULL);
    status = status < 0 || capsule == NULL ? -1 : PyModule_AddObjectRef(module, "bridge", capsule);
    Py_XDECREF(capsule);
    return -(status < 0 || add(module, &streamsan_stacks_spec, &stacks_type) < 0
             || add(module, &streamsan_accesses_spec, &accesses_type) < 0
             || add(module, &streamsan_work_spec, &work_type) < 0
             || add(module, &streamsan_born_spec, &born_type) < 0
             || add(module, &streamsan_blocks_spec, &blocks_type) < 0
             || add(module, &streamsan_outlet_spec, &outlet_type) < 0
             || add(module, &streamsan_recording_spec, &recording_type) < 0
             || add(module, &streamsan_operator_spec, &operator_type) < 0
             || add(module, &streamsan_running_spec, &running_type) < 0
             || add(module, &streamsan_packed_spec, &packed_type) < 0
             || add(module, &streamsan_then_spec, NULL) < 0);
}

static PyMethodDef functions[] = {
    {"hook_method", hook_method, METH_VARARGS, "Listen to a method or function."},
    {"hook_field", hook_field, METH_VARARGS, "Listen to a function that a type has in a field."},
    {"hook_object", hook_object, METH_VARARGS, "Listen to the calls of an object."},
    {"watch_arrays", arrays_watch, METH_VARARGS, "Set what is told of calls."},
    {"watch_memory", arrays_watch_memory, METH_O, "Set the memory whose use is told."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "streamsan.record._compiled",
    .m_doc = "The parts of the recorder that run for each operator.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
