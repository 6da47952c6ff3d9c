// Shows the recorder the operators of a thread from inside of torch's dispatcher, without a Python
// mode: a boxed fallback on the dispatch key `Fake`, which lies beside `Python`, below autograd,
// and which nothing of torch's uses as a fallback. Where it is included, every operator that torch
// would show to a dispatch mode comes here first.
//
// Most operators touch no bytes, and are passed on without the interpreter. Of those that do, the
// tensors are described to the compiled core before and after; where there is no core, or it says
// so, they are handed to Python. Whatever takes more is run under a dispatch mode, for this one
// operator.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "described.hpp"
#include "gpu_trace.hpp"
#include "interpreter.hpp"
#include "reporting.hpp"
#include "routes.hpp"

namespace {

using namespace streamsan;

constexpr auto kKey = c10::DispatchKey::Fake;

bool wraps(const c10::IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined() && value.toTensor().key_set().has(c10::DispatchKey::Python);
  if (!may_hold_tensors(value)) return false;
  const auto items = value.toListRef();
  return std::any_of(items.begin(), items.end(), wraps);
}

// Switches the keys that show operators to modes back on, where the program has switched them off.
class Shown {
 public:
  explicit Shown(bool wanted) {
    for (size_t i = 0; i < std::size(kKeys); i++) {
      off_[i] = wanted && c10::impl::tls_is_dispatch_key_excluded(kKeys[i]);
      if (off_[i]) c10::impl::tls_set_dispatch_key_excluded(kKeys[i], false);
    }
  }
  ~Shown() {
    for (size_t i = 0; i < std::size(kKeys); i++)
      if (off_[i]) c10::impl::tls_set_dispatch_key_excluded(kKeys[i], true);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

 private:
  // A mode is called by the first, which relies on what the second has kept on the way in.
  static constexpr c10::DispatchKey kKeys[] = {
      c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot};
  bool off_[std::size(kKeys)];
};

// The recorder's dispatch mode, for one operator; also where the program has switched off modes,
// as FSDP does for `record_stream`, unless that is for a tensor of a class that has its own.
class Mode {
 public:
  Mode(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : wanted_(!any_wraps(op, stack)), shown_(wanted_) {
    if (!wanted_) return;
    Interpreter interpreter;
    pushed_ = PyObject_CallNoArgs(recorder.push_mode);
  }
  ~Mode() {
    if (!pushed_) return;
    Interpreter interpreter;
    Py_XDECREF(PyObject_CallOneArg(recorder.pop_mode, pushed_));
    Py_DECREF(pushed_);
  }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  static bool any_wraps(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const auto count = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
    return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python) &&
        std::any_of(stack.end() - count, stack.end(), wraps);
  }

  const bool wanted_;
  const Shown shown_;
  PyObject* pushed_ = nullptr;
};

void note_view(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& first = stack[stack.size() - op.schema().arguments().size()];
  if (c10::GradMode::is_enabled() && first.isTensor() && first.toTensor().requires_grad()) {
    Interpreter interpreter;
    Py_XDECREF(PyObject_CallNoArgs(recorder.note));
  }
}

// Whether a compiler is at work on an operator: on tensors without bytes, or on stand-ins.
bool traced(c10::DispatchKeySet keys) {
  return keys.has(c10::DispatchKey::Meta) || keys.has(c10::DispatchKey::Functionalize);
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (keys.has(c10::DispatchKey::Python) || traced(keys)) {
    // A mode or a class of the program's comes first, and calls what it is made of.
    op.redispatchBoxed(
        keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    return;
  }
  const Route& route = route_of(op);
  c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  switch (route.way) {
    case Way::view:
      note_view(op, *stack);
      [[fallthrough]];
    case Way::pass:
      op.callBoxed(stack);
      return;
    case Way::report: {
      Reporting reporting(op, route, *stack);
      op.callBoxed(stack);
      reporting.done(op.schema().returns().size(), *stack);
      return;
    }
    case Way::mode: {
      Mode mode(op, *stack);
      op.callBoxed(stack);
    }
  }
}

PyObject* set_up(PyObject*, PyObject* args) {
  PyObject* bridge;
  auto& r = recorder;
  if (!PyArg_ParseTuple(
          args, "OOOOOOO", &r.find_route, &r.begin, &r.push_mode, &r.pop_mode, &r.note, &r.tell,
          &bridge))
    return nullptr;
  for (PyObject* kept : {r.find_route, r.begin, r.push_mode, r.pop_mode, r.note, r.tell})
    Py_INCREF(kept);
  if (bridge != Py_None) {
    const auto* core = static_cast<const Bridge*>(PyCapsule_GetPointer(bridge, BRIDGE_CAPSULE));
    if (!core) return nullptr;
    if (core->version == BRIDGE_VERSION) r.core = core; // else it is one of another release
  }
  static auto library = torch::Library(
      torch::Library::IMPL, "_", std::make_optional(kKey), __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  Py_RETURN_NONE;
}

PyObject* trace_memory(PyObject*, PyObject* args) {
  PyObject *recording, *allocations, *frees;
  if (!PyArg_ParseTuple(
          args, "OO!O!", &recording, &PyList_Type, &allocations, &PyList_Type, &frees))
    return nullptr;
  return PyBool_FromLong(GpuTrace::replace(recorder.core, recording, allocations, frees));
}

PyObject* pass_over(PyObject*, PyObject* names) {
  static auto library =
      torch::Library(torch::Library::IMPL, "aten", std::make_optional(kKey), __FILE__, __LINE__);
  if (!PyTuple_Check(names)) return PyErr_Format(PyExc_TypeError, "pass_over takes a tuple");
  for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(names); at++) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, at));
    if (!name) return nullptr;
    library.impl(name, torch::CppFunction::makeFallthrough());
  }
  Py_RETURN_NONE;
}

PyObject* include(PyObject*, PyObject* on) {
  const int wanted = PyObject_IsTrue(on);
  if (wanted < 0) return nullptr;
  c10::impl::tls_set_dispatch_key_included(kKey, wanted != 0);
  Py_RETURN_NONE;
}

#ifdef STREAMSAN_HOST_AS_DEVICE // for tests, where no allocator does it
PyObject* trace(PyObject*, PyObject* args) {
  const char* what;
  unsigned long long address;
  if (!PyArg_ParseTuple(args, "sK", &what, &address)) return nullptr;
  const auto& table = **c10::impl::GPUTrace::get_trace();
  const std::string name = what;
  if (name == "allocation") table.trace_gpu_memory_allocation(c10::DeviceType::CUDA, address);
  if (name == "free") table.trace_gpu_memory_deallocation(c10::DeviceType::CUDA, address);
  if (name == "event") table.trace_gpu_event_creation(c10::DeviceType::CUDA, address);
  Py_RETURN_NONE;
}
#endif

PyMethodDef methods[] = {
#ifdef STREAMSAN_HOST_AS_DEVICE
    {"trace", trace, METH_VARARGS, "trace(what, address): an event of torch's GPU trace."},
#endif
    {"set_up", set_up, METH_VARARGS,
     "set_up(find_route, begin, push_mode, pop_mode, note, tell, bridge): once in a process."},
    {"pass_over", pass_over, METH_O,
     "pass_over(names): have the dispatcher pass us over for these of aten's operators, once in a "
     "process and before any thread is included."},
    {"trace_memory", trace_memory, METH_VARARGS,
     "trace_memory(recording, of_allocations, of_frees): tell a recording of what torch's GPU trace "
     "shows of memory, beside the listeners in both lists; False where that is not possible."},
    {"include", include, METH_O, "include(on): show the operators of the calling thread."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_streamsan_dispatch", "Operators from torch's dispatcher.", -1,
    methods, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__streamsan_dispatch() {
  return PyModule_Create(&definition);
}