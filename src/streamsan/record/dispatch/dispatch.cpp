// Shows the recorder the operators of a thread from inside of torch's dispatcher, without a Python
// mode: a boxed fallback on the dispatch key `Fake`, which lies beside `Python`, below autograd,
// and which nothing of torch's uses as a fallback. Where it is included, every operator that torch
// would show to a dispatch mode comes here first.
//
// Most operators touch no bytes, and are passed on without the interpreter. Of those that do, the
// tensors are handed to Python before and after. Whatever takes more is run under a dispatch mode,
// for this one operator.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>

namespace {

constexpr auto kKey = c10::DispatchKey::Fake;

// A reference that lives as long as the process: static destructors run after the interpreter.
PyObject* find_route = nullptr; // find_route(name, overload) -> None, "mode", "view" or a Reported
PyObject* begin = nullptr;      // begin(reported, args, kwargs) -> a Running, or None
PyObject* push_mode = nullptr;  // push_mode() -> the mode
PyObject* pop_mode = nullptr;   // pop_mode(mode)
PyObject* note = nullptr;       // note(): a view that needs a gradient was made
PyObject* tell = nullptr;       // tell(error): an internal error
PyObject* done_name = nullptr;
PyObject* end_name = nullptr;

enum class Way { pass, view, report, mode };

struct Route {
  Way way = Way::pass;
  PyObject* reported = nullptr;
};

// Have an error of ours told, if there is one: the program is to know nothing of it.
void tell_of_error() {
  if (!PyErr_Occurred()) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && trace) PyException_SetTraceback(value, trace);
  if (value) Py_XDECREF(PyObject_CallFunctionObjArgs(tell, value, nullptr));
  PyErr_Clear();
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

// Whether a tensor has memory of its own, unlike those that wrap others, fake ones, and those that
// torch has made of a number of the program's.
bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
      !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.is_meta();
}

// Whether a value is a list, and not one of the sorts of numbers that most are of.
bool may_hold_tensors(const c10::IValue& value) {
  return value.isList() && !value.isIntList() && !value.isDoubleList();
}

// An argument or a result as Python sees it, as far as a report needs it: tensors, lists of them,
// and booleans; None for anything else. A new reference, or null with an error set.
PyObject* shown(const c10::IValue& value) {
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
bool arguments(
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

PyObject* results(size_t count, const torch::jit::Stack& stack) {
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

Route* make_route(const c10::OperatorHandle& op) {
  auto* route = new Route;
  Interpreter interpreter;
  PyObject* found = PyObject_CallFunction(
      find_route, "ss", op.operator_name().name.c_str(), op.operator_name().overload_name.c_str());
  if (!found || found == Py_None) {
    Py_XDECREF(found);
  } else if (PyUnicode_Check(found)) {
    route->way = PyUnicode_CompareWithASCIIString(found, "view") == 0 ? Way::view : Way::mode;
    Py_DECREF(found);
  } else {
    route->way = Way::report;
    route->reported = found;
  }
  return route;
}

// Routes are looked up without the interpreter lock, by where the dispatcher keeps the operator's
// name, and live as long as the process.
const Route& route_of(const c10::OperatorHandle& op) {
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

// An operator that is being reported.
class Reporting {
 public:
  Reporting(const c10::OperatorHandle& op, PyObject* reported, const torch::jit::Stack& stack) {
    Interpreter interpreter;
    PyObject *args = nullptr, *kwargs = nullptr;
    if (arguments(op.schema(), stack, &args, &kwargs)) {
      running_ = PyObject_CallFunctionObjArgs(begin, reported, args, kwargs, nullptr);
      if (running_ == Py_None) Py_CLEAR(running_);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
  }

  void done(size_t count, const torch::jit::Stack& stack) {
    if (!running_) return;
    Interpreter interpreter;
    PyObject* result = results(count, stack);
    if (result) {
      Py_XDECREF(PyObject_CallMethodObjArgs(running_, done_name, result, nullptr));
      Py_DECREF(result);
    }
    end();
  }

  ~Reporting() {
    if (!running_) return;
    Interpreter interpreter;
    end();
  }
  Reporting(const Reporting&) = delete;
  Reporting& operator=(const Reporting&) = delete;

 private:
  void end() {
    tell_of_error();
    Py_XDECREF(PyObject_CallMethodObjArgs(running_, end_name, nullptr));
    Py_CLEAR(running_);
  }

  PyObject* running_ = nullptr;
};

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
    pushed_ = PyObject_CallFunctionObjArgs(push_mode, nullptr);
  }
  ~Mode() {
    if (!pushed_) return;
    Interpreter interpreter;
    Py_XDECREF(PyObject_CallFunctionObjArgs(pop_mode, pushed_, nullptr));
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
    Py_XDECREF(PyObject_CallFunctionObjArgs(note, nullptr));
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
      Reporting reporting(op, route.reported, *stack);
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
  if (!PyArg_ParseTuple(
          args, "OOOOOO", &find_route, &begin, &push_mode, &pop_mode, &note, &tell))
    return nullptr;
  for (PyObject* kept : {find_route, begin, push_mode, pop_mode, note, tell}) Py_INCREF(kept);
  if (!(done_name = PyUnicode_InternFromString("done"))) return nullptr;
  if (!(end_name = PyUnicode_InternFromString("end"))) return nullptr;
  static auto library = torch::Library(
      torch::Library::IMPL, "_", std::make_optional(kKey), __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  Py_RETURN_NONE;
}

PyObject* include(PyObject*, PyObject* on) {
  const int wanted = PyObject_IsTrue(on);
  if (wanted < 0) return nullptr;
  c10::impl::tls_set_dispatch_key_included(kKey, wanted != 0);
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"set_up", set_up, METH_VARARGS,
     "set_up(find_route, begin, push_mode, pop_mode, note, tell): once in a process."},
    {"include", include, METH_O, "include(on): show the operators of the calling thread."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_streamsan_dispatch", "Operators from torch's dispatcher.", -1,
    methods, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__streamsan_dispatch() {
  return PyModule_Create(&definition);
}
