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
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/view_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <string>

#include "current.hpp"
#include "described.hpp"
#include "gpu_trace.hpp"
#include "interpreter.hpp"
#include "mode.hpp"
#include "reporting.hpp"
#include "routes.hpp"

namespace {

using namespace streamsan;

constexpr auto kKey = c10::DispatchKey::Fake;

// What is left to be run of an operator.
c10::DispatchKeySet below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
}

// Whether an operator is passed on, and what it is made of comes here: where a mode or a class of
// the program's comes first, and where a compiler is at work, on tensors without bytes or stand-ins.
bool is_for_others(c10::DispatchKeySet keys) {
  return keys.has(c10::DispatchKey::Python) || keys.has(c10::DispatchKey::Meta) ||
      keys.has(c10::DispatchKey::Functionalize);
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (is_for_others(keys)) {
    op.redispatchBoxed(below(keys), stack);
    return;
  }
  const Route& route = route_of(op);
  c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  switch (route.way) {
    case Way::view:
      note_view((*stack)[stack->size() - op.schema().arguments().size()]);
      [[fallthrough]];
    case Way::pass:
      op.redispatchBoxed(below(keys), stack);
      return;
    case Way::report: {
      Reporting reporting(op, route, *stack);
      op.redispatchBoxed(below(keys), stack);
      reporting.done(op.schema().returns().size(), *stack);
      return;
    }
    case Way::mode: {
      Mode mode(op, *stack);
      op.callBoxed(stack); // which finds the mode
    }
  }
}

// Operators that programs are fullest of, without the fallback's way through boxed values.

at::Tensor view(c10::DispatchKeySet keys, const at::Tensor& self, c10::SymIntArrayRef size) {
  if (is_for_others(keys)) return at::_ops::view::redispatch(below(keys), self, size);
  note_view(self);
  c10::impl::ExcludeDispatchKeyGuard guard(kKey);
  return at::_ops::view::redispatch(below(keys), self, size);
}

at::Scalar item(c10::DispatchKeySet keys, const at::Tensor& self) {
  const bool others = is_for_others(keys);
  if (others || (device_index(self) < 0 && !sees_hosts())) {
    c10::impl::ExcludeDispatchKeyGuard guard(others ? c10::DispatchKeySet() : c10::DispatchKeySet(kKey));
    return at::_ops::_local_scalar_dense::redispatch(below(keys), self);
  }
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_local_scalar_dense", "");
  torch::jit::Stack stack = {self};
  fallback(op, keys, &stack);
  return stack.back().toScalar();
}

PyObject* set_up(PyObject*, PyObject* args) {
  PyObject* bridge;
  auto& r = recorder;
  if (!PyArg_ParseTuple(
          args, "OOOOOOOO", &r.find_route, &r.begin, &r.push_mode, &r.pop_mode, &r.note, &r.tell,
          &bridge, &r.recording))
    return nullptr;
  for (PyObject* kept :
       {r.find_route, r.begin, r.push_mode, r.pop_mode, r.note, r.tell, r.recording})
    Py_INCREF(kept);
  if (bridge != Py_None) {
    const auto* core = static_cast<const Bridge*>(PyCapsule_GetPointer(bridge, BRIDGE_CAPSULE));
    if (!core) return nullptr;
    if (core->version == BRIDGE_VERSION) { // else it is one of another release
      r.core = core;
      core->ask(r.recording, &current);
    }
  }
  static auto library = torch::Library(
      torch::Library::IMPL, "_", std::make_optional(kKey), __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  Py_RETURN_NONE;
}

PyObject* trace_memory(PyObject*, PyObject* args) {
  PyObject *allocations, *frees;
  if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &allocations, &PyList_Type, &frees))
    return nullptr;
  return PyBool_FromLong(GpuTrace::replace(allocations, frees));
}

PyObject* pass_over(PyObject*, PyObject* names) {
  static auto library =
      torch::Library(torch::Library::IMPL, "aten", std::make_optional(kKey), __FILE__, __LINE__);
  library.impl("view", TORCH_FN(view));
  library.impl("_local_scalar_dense", TORCH_FN(item));
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

PyObject* be_on_stream(PyObject*, PyObject* id) {
  stream_of_test = PyLong_AsLongLong(id);
  Py_RETURN_NONE;
}
#endif

PyMethodDef methods[] = {
#ifdef STREAMSAN_HOST_AS_DEVICE
    {"trace", trace, METH_VARARGS, "trace(what, address): an event of torch's GPU trace."},
    {"be_on_stream", be_on_stream, METH_O, "be_on_stream(id): that is the current stream."},
#endif
    {"set_up", set_up, METH_VARARGS,
     "set_up(find_route, begin, push_mode, pop_mode, note, tell, bridge, recording): once in a "
     "process."},
    {"pass_over", pass_over, METH_O,
     "pass_over(names): have the dispatcher pass us over for these of aten's operators, once in a "
     "process and before any thread is included."},
    {"trace_memory", trace_memory, METH_VARARGS,
     "trace_memory(of_allocations, of_frees): tell the recording of what torch's GPU trace shows of "
     "memory, beside the listeners in both lists; False where that is not possible."},
    {"include", include, METH_O, "include(on): show the operators of the calling thread."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_streamsan_dispatch", "Operators from torch's dispatcher.", -1,
    methods, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__streamsan_dispatch() {
  return PyModule_Create(&definition);
}