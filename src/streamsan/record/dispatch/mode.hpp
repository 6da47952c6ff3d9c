// Operators that are run under a dispatch mode of the recorder's.

#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <iterator>

#include "described.hpp"
#include "interpreter.hpp"

namespace streamsan {

inline bool wraps(const c10::IValue& value) {
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

} // namespace streamsan
