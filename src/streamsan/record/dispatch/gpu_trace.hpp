// Allocations and frees of torch's GPU trace, taken before it asks Python for whom to call.
//
// torch calls a table of virtual functions (c10/core/impl/PyInterpreter.h), whose entries import a
// module, look up a registry in it and call that: for each block handed out or taken back. So this
// has torch call a copy of the table in which these two are ours. Which entries there are differs
// from release to release; that they are one array of addresses does not (Itanium C++ ABI, 2.5.2).

#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <c10/core/impl/PyInterpreter.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "interpreter.hpp"

namespace streamsan {

class GpuTrace {
 public:
  // Have torch's trace call the core; `listeners` are the lists of others that listen for
  // allocations and for frees. False where that is not possible: it stays as it is.
  static bool replace(PyObject* of_allocations, PyObject* of_frees) {
    const c10::impl::PyInterpreter* known = c10::impl::GPUTrace::get_trace();
    if (!known || !recorder.core) return false;
    if (known != &ours_) {
      original_ = known->vtable_;
      const void* const* entries = *reinterpret_cast<const void* const* const*>(original_);
      const size_t last = slot(&Table::reset_backward_hooks); // the last that is declared
      const size_t allocation = slot(&Table::trace_gpu_memory_allocation);
      const size_t deallocation = slot(&Table::trace_gpu_memory_deallocation);
      if (last >= kMost || allocation > last || deallocation > last) return false;
      std::copy(entries - kBefore, entries + last + 1, copy_.begin());
      allocated_ = reinterpret_cast<Function>(const_cast<void*>(entries[allocation]));
      freed_ = reinterpret_cast<Function>(const_cast<void*>(entries[deallocation]));
      copy_[kBefore + allocation] = reinterpret_cast<const void*>(&allocated);
      copy_[kBefore + deallocation] = reinterpret_cast<const void*>(&freed);
    }
    Py_INCREF(of_allocations); // both live as long as the process
    Py_INCREF(of_frees);
    listeners_[0] = of_allocations;
    listeners_[1] = of_frees;
    c10::impl::GPUTrace::gpuTraceState.store(&ours_, std::memory_order_release);
    return true;
  }

 private:
  using Table = c10::impl::PyInterpreterVTable;
  using Function = void (*)(const Table*, c10::DeviceType, uintptr_t);

  static constexpr size_t kMost = 100;  // entries of a table
  static constexpr size_t kBefore = 2;  // in front of them: an offset, and what type it is

  // The place of a virtual function in the table.
  template <class Method>
  static size_t slot(Method method) {
    struct {
      uintptr_t function;
      ptrdiff_t adjustment;
    } raw;
    static_assert(sizeof raw == sizeof method, "not the ABI that this relies on");
    std::memcpy(&raw, &method, sizeof raw);
#if defined(__aarch64__) || defined(__arm__)
    return (raw.adjustment & 1) ? raw.function / sizeof(void*) : kMost;
#else
    return (raw.function & 1) ? (raw.function - 1) / sizeof(void*) : kMost;
#endif
  }

  static void allocated(const Table*, c10::DeviceType type, uintptr_t address) {
    if (tell(recorder.core->allocated, type, address, listeners_[0])) allocated_(original_, type, address);
  }

  static void freed(const Table*, c10::DeviceType type, uintptr_t address) {
    if (tell(recorder.core->freed, type, address, listeners_[1])) freed_(original_, type, address);
  }

  // Tell the core; whether others are to be told as well.
  static bool tell(
      void (*function)(PyObject*, uint64_t),
      c10::DeviceType type,
      uintptr_t address,
      PyObject* listeners) {
    if (type != c10::DeviceType::CUDA || !Py_IsInitialized()) return true;
    Interpreter interpreter;
    function(recorder.recording, address);
    return PyList_GET_SIZE(listeners) > 0;
  }

  static inline std::array<const void*, kBefore + kMost> copy_ = {};
  static inline const void* const* object_ = copy_.data() + kBefore; // of a class with this table
  static inline c10::impl::PyInterpreter ours_{reinterpret_cast<const Table*>(&object_)};
  static inline const Table* original_ = nullptr;
  static inline Function allocated_ = nullptr, freed_ = nullptr;
  static inline PyObject* listeners_[2] = {};
};

} // namespace streamsan
