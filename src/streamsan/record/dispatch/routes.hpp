// How each operator is treated, as the recorder says when it first comes.

#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interpreter.hpp"

namespace streamsan {


enum class Way { pass, view, report, mode };

struct Route {
  Way way = Way::pass;
  PyObject* reported = nullptr;
  // Where the core takes the operator: which arguments it looks at, and what would speak against it.
  bool described = false;
  bool fresh = false, copies = false;
  std::vector<std::pair<size_t, int>> places; // arguments, and their places in `Operator.places`
  int pins = -1, moves = -1;                  // arguments: whether to pin memory, another device
  int training = -1;                          // argument: whether statistics are updated
};

inline int argument_named(const c10::FunctionSchema& schema, const char* name) {
  const auto found = schema.argumentIndexWithName(name);
  return found ? static_cast<int>(*found) : -1;
}

// Whether an object's attribute, an integer, is not 0.
inline bool flag(PyObject* owner, const char* name) {
  PyObject* value = PyObject_GetAttrString(owner, name);
  const bool set = value && PyObject_IsTrue(value) > 0;
  Py_XDECREF(value);
  return set;
}

// Fill in what is needed to have the core take an operator, if it does.
inline void describe_route(Route* route, const c10::FunctionSchema& schema) {
  if (!recorder.core || !PyObject_HasAttrString(route->reported, "places")) return;
  PyObject* places = PyObject_GetAttrString(route->reported, "places");
  if (!places || !PyList_Check(places)) return Py_XDECREF(places);
  for (Py_ssize_t at = 0; at < PyList_GET_SIZE(places); at++) {
    PyObject* place = PyList_GET_ITEM(places, at); // (position, name, mode)
    long index = PyLong_AsLong(PyTuple_GET_ITEM(place, 0));
    if (index < 0) index = argument_named(schema, PyUnicode_AsUTF8(PyTuple_GET_ITEM(place, 1)));
    if (index >= 0) route->places.emplace_back(index, static_cast<int>(at));
  }
  Py_DECREF(places);
  PyObject* training = PyObject_GetAttrString(route->reported, "training"); // a place, or None
  if (training && PyTuple_Check(training))
    route->training = argument_named(schema, PyUnicode_AsUTF8(PyTuple_GET_ITEM(training, 1)));
  Py_XDECREF(training);
  route->fresh = flag(route->reported, "fresh");
  route->pins = argument_named(schema, "pin_memory");
  route->copies = flag(route->reported, "copies");
  route->moves = route->copies ? argument_named(schema, "device") : -1;
  route->described = true;
}

inline Route* make_route(const c10::OperatorHandle& op) {
  auto* route = new Route;
  Interpreter interpreter;
  PyObject* found = PyObject_CallFunction(
      recorder.find_route, "ss", op.operator_name().name.c_str(), op.operator_name().overload_name.c_str());
  if (!found || found == Py_None) {
    Py_XDECREF(found);
  } else if (PyUnicode_Check(found)) {
    route->way = PyUnicode_CompareWithASCIIString(found, "view") == 0 ? Way::view : Way::mode;
    Py_DECREF(found);
  } else {
    route->way = Way::report;
    route->reported = found;
    describe_route(route, op.schema());
  }
  return route;
}

// Routes are looked up without the interpreter lock, by where the dispatcher keeps the operator's
// name, and live as long as the process.
inline const Route& route_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static std::unordered_map<const void*, Route*> all;
  thread_local std::unordered_map<const void*, Route*> known;
  const void* key = &op.operator_name();
  auto place = known.find(key);
  if (place != known.end()) return *place->second;
  {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = all.find(key);
    if (found != all.end()) return *(known[key] = found->second);
  }
  Route* made = make_route(op); // not under the lock: it takes the interpreter's
  std::lock_guard<std::mutex> guard(mutex);
  Route*& kept = all[key];
  if (!kept) kept = made; // else another thread was faster, and this one is left alone
  return *(known[key] = kept);
}

} // namespace streamsan
