// Operators that are reported, by descriptions of their tensors, or by the tensors themselves.

#pragma once

#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include <string>

#include "described.hpp"
#include "interpreter.hpp"
#include "routes.hpp"
#include "shown.hpp"

namespace streamsan {

// The sequence number of the node that autograd has just made.
inline int64_t last_node() { return static_cast<int64_t>(at::sequence_number::peek()) - 1; }

// Whether what is done to memory of the host may have to be reported.
inline bool sees_hosts() {
  return !recorder.core || recorder.core->sees_hosts(recorder.recording) != 0;
}

// A view was made, to which a backward node may belong.
inline void note_view(const at::Tensor& of) {
  if (!c10::GradMode::is_enabled() || !of.requires_grad()) return;
  Interpreter interpreter;
  if (recorder.core)
    recorder.core->note(recorder.recording, last_node());
  else
    Py_XDECREF(PyObject_CallNoArgs(recorder.note));
}

inline void note_view(const c10::IValue& of) {
  if (of.isTensor()) note_view(of.toTensor());
}

// An operator that is being reported.
class Reporting {
 public:
  Reporting(const c10::OperatorHandle& op, const Route& route, const torch::jit::Stack& stack)
      : route_(route) {
    const size_t count = op.schema().arguments().size();
    if (!route.described || !describe(&stack[stack.size() - count])) show(op, stack);
  }

  void done(size_t count, const torch::jit::Stack& stack) {
    if (described_) {
      Descriptions made;
      for (size_t i = stack.size() - count; route_.fresh && i < stack.size(); i++)
        made.add(stack[i], 0, true);
      Interpreter interpreter;
      recorder.core->done(&began_, made.tensors.data(), made.tensors.size());
      end();
    } else if (running_) {
      Interpreter interpreter;
      PyObject* result = results(count, stack);
      if (result) {
        Py_XDECREF(PyObject_CallMethod(running_, "done", "(O)", result));
        Py_DECREF(result);
      }
      end();
    }
  }

  ~Reporting() {
    if (!described_ && !running_) return;
    Interpreter interpreter;
    end();
  }
  Reporting(const Reporting&) = delete;
  Reporting& operator=(const Reporting&) = delete;

 private:
  // Have the core look at the arguments; false where Python is to.
  bool describe(const c10::IValue* given) {
    if (is_set(given, route_.pins)) return false;
    Descriptions found;
    for (const auto& [index, place] : route_.places) found.add(given[index], place, false);
    if (found.odd || !stays(found, given)) return false;
    if (found.tensors.empty() && !route_.fresh && !(found.hosts && sees_hosts()))
      return true; // there is nothing to be said of it
    Arguments arguments = {
        found.tensors.data(), found.tensors.size(), found.hosts, is_set(given, route_.training), -1,
        {}};
    if (found.grad && c10::GradMode::is_enabled()) arguments.made = last_node();
    std::string name;
    if (const auto node = torch::autograd::get_current_node()) {
      name = node->name();
      arguments.running = {name.c_str(), static_cast<int64_t>(node->sequence_nr())};
    }
    Interpreter interpreter;
    const Beginning how = recorder.core->begin(route_.reported, &arguments, &began_);
    described_ = how == BEGIN_DESCRIBED;
    return how != BEGIN_IN_PYTHON;
  }

  // Whether the argument of a number, below 0 for none, is true.
  static bool is_set(const c10::IValue* given, int number) {
    return number >= 0 && given[number].isBool() && given[number].toBool();
  }

  // Whether this is no copy that leaves the memory of its device.
  bool stays(const Descriptions& found, const c10::IValue* given) const {
    if (!route_.copies) return true;
    if (found.hosts || found.tensors.size() != route_.places.size()) return false;
    const auto index = found.tensors.front().tensor.device.index;
    if (found.tensors.back().tensor.device.index != index) return false;
    if (route_.moves < 0 || given[route_.moves].isNone()) return true;
    const c10::Device to = given[route_.moves].toDevice();
    return to.is_cuda() && to.has_index() && to.index() == index;
  }

  void show(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    Interpreter interpreter;
    PyObject *args = nullptr, *kwargs = nullptr;
    if (arguments(op.schema(), stack, &args, &kwargs)) {
      running_ = PyObject_CallFunctionObjArgs(recorder.begin, route_.reported, args, kwargs, nullptr);
      if (running_ == Py_None) Py_CLEAR(running_);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
  }

  void end() {
    tell_of_error();
    if (described_) recorder.core->end(&began_);
    if (running_) Py_XDECREF(PyObject_CallMethod(running_, "end", nullptr));
    described_ = false;
    Py_CLEAR(running_);
  }

  const Route& route_;
  bool described_ = false;
  Began began_;
  PyObject* running_ = nullptr;
};

} // namespace streamsan
