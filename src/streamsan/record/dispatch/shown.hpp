// Arguments and results of operators as Python objects.

#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/python_variable.h>

#include "described.hpp"

namespace streamsan {

// An argument or a result as Python sees it, as far as a report needs it: tensors, lists of them,
// and booleans; None for anything else. A new reference, or null with an error set.
inline PyObject* shown(const c10::IValue& value) {
  if (value.isTensor()) {
    if (has_memory(value.toTensor())) return THPVariable_Wrap(value.toTensor());
  } else if (value.isBool()) {
    return PyBool_FromLong(value.toBool());
  } else if (may_hold_tensors(value)) {
    const auto items = value.toListRef();
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(items.size()));
    if (!list) return nullptr;
    Py_ssize_t place = 0;
    for (const c10::IValue& item : items) {
      PyObject* element = shown(item);
      if (!element) {
        Py_DECREF(list);
        return nullptr;
      }
      PyList_SET_ITEM(list, place++, element);
    }
    return list;
  }
  Py_RETURN_NONE;
}

// The arguments of a call: those with a place, and those that have a name only.
inline bool arguments(
    const c10::FunctionSchema& schema,
    const torch::jit::Stack& stack,
    PyObject** args,
    PyObject** kwargs) {
  const auto& declared = schema.arguments();
  const size_t count = declared.size(), first = stack.size() - count;
  size_t positional = 0;
  while (positional < count && !declared[positional].kwarg_only()) positional++;
  *args = PyTuple_New(static_cast<Py_ssize_t>(positional));
  *kwargs = PyDict_New();
  if (!*args || !*kwargs) return false;
  for (size_t i = 0; i < count; i++) {
    PyObject* value = shown(stack[first + i]);
    if (!value) return false;
    if (i < positional) {
      PyTuple_SET_ITEM(*args, static_cast<Py_ssize_t>(i), value);
      continue;
    }
    const int set =
        value == Py_None ? 0 : PyDict_SetItemString(*kwargs, declared[i].name().c_str(), value);
    Py_DECREF(value);
    if (set < 0) return false;
  }
  return true;
}

inline PyObject* results(size_t count, const torch::jit::Stack& stack) {
  if (count == 1) return shown(stack.back());
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  for (size_t i = 0; tuple && i < count; i++) {
    PyObject* value = shown(stack[stack.size() - count + i]);
    if (!value) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), value);
  }
  return tuple;
}

} // namespace streamsan
