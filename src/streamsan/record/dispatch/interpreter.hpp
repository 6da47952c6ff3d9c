// The interpreter, where the program may be in the middle of anything.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../compiled/bridge.h"

namespace streamsan {

// What the recorder has given us. References live as long as the process: static destructors run
// after the interpreter.
inline struct {
  PyObject* find_route = nullptr; // find_route(name, overload): see Dispatch._route
  PyObject* begin = nullptr;      // begin(reported, args, kwargs) -> a Running, or None
  PyObject* push_mode = nullptr;  // push_mode() -> the mode
  PyObject* pop_mode = nullptr;   // pop_mode(mode)
  PyObject* note = nullptr;       // note(): a view that needs a gradient was made
  PyObject* tell = nullptr;       // tell(error): an internal error
  const Bridge* core = nullptr;   // the compiled core, where there is one
  PyObject* recording = nullptr;  // what it is told
} recorder;

// Raise an exception that was kept.
inline int raise_kept(void* kept) {
  auto* error = static_cast<PyObject*>(kept);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
  return -1;
}

// Have an error of ours told, if there is one: the program is to know nothing of it. An interrupt
// is the program's: it is raised where its main thread goes on.
inline void tell_of_error() {
  if (!PyErr_Occurred()) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace) PyException_SetTraceback(value, trace);
  if (value && PyErr_GivenExceptionMatches(value, PyExc_Exception)) {
    Py_XDECREF(PyObject_CallFunctionObjArgs(recorder.tell, value, nullptr));
    PyErr_Clear();
  } else if (value) {
    Py_INCREF(value);
    if (Py_AddPendingCall(raise_kept, value) < 0) Py_DECREF(value); // there are too many already
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
}

// The interpreter lock; an error that is on its way meanwhile is kept.
class Interpreter {
 public:
  Interpreter() : state_(PyGILState_Ensure()) {
    if (PyErr_Occurred()) PyErr_Fetch(&type_, &value_, &trace_);
  }
  ~Interpreter() {
    tell_of_error();
    if (type_) PyErr_Restore(type_, value_, trace_);
    PyGILState_Release(state_);
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

 private:
  PyGILState_STATE state_;
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

} // namespace streamsan
