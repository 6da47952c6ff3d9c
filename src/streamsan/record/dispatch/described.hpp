// Tensors of torch, described for the compiled core: see ../compiled/bridge.h.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include "../compiled/bridge.h"

namespace streamsan {

// Whether a tensor has memory of its own, unlike those that wrap others, fake ones, and those that
// torch has made of a number of the program's.
inline bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
      !tensor.key_set().has(c10::DispatchKey::Python) && !tensor.is_meta();
}

// Whether a value is a list, and not one of the sorts of numbers that most are of.
inline bool may_hold_tensors(const c10::IValue& value) {
  return value.isList() && !value.isIntList() && !value.isDoubleList();
}

// The device that a tensor lies on, or -1: the host.
inline int device_index(const at::Tensor& tensor) {
#ifdef STREAMSAN_HOST_AS_DEVICE // for tests, where there is none
  return tensor.is_cpu() ? 0 : -1;
#else
  return tensor.is_cuda() ? tensor.get_device() : -1;
#endif
}

// What the tensors of a call are described by.
struct Descriptions {
  c10::SmallVector<Described, 8> tensors;
  bool hosts = false; // whether there are some of the host
  bool grad = false;  // whether a gradient is wanted of one
  bool odd = false;   // whether there is one that cannot be described

  // Add all tensors of a value, those of the host only where they are asked for.
  void add(const c10::IValue& value, int place, bool with_hosts) {
    if (value.isTensor()) {
      add(value.toTensor(), place, with_hosts);
    } else if (may_hold_tensors(value)) {
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor()) add(item.toTensor(), place, with_hosts);
    }
  }

 private:
  void add(const at::Tensor& tensor, int place, bool with_hosts) {
    if (!has_memory(tensor)) return;
    grad = grad || tensor.requires_grad();
    const bool host = device_index(tensor) < 0;
    hosts = hosts || host;
    if (!is_plain(tensor)) {
      odd = true;
    } else if (!host || with_hosts) {
      try {
        tensors.push_back(description(tensor, place));
      } catch (const std::exception&) { // its storage lets nobody see where it is
        odd = true;
      }
    }
  }

  static bool is_plain(const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_nested() &&
        !tensor._is_zerotensor() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() &&
        tensor.dim() <= 64;
  }

  // Where it is, its address is not asked of it: that would copy memory that is copied on write.
  static Described description(const at::Tensor& tensor, int place) {
    const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    const auto item = static_cast<int64_t>(tensor.element_size());
    Described made = {};
    made.tensor.data = made.storage = const_cast<void*>(storage.data());
    made.tensor.byte_offset = static_cast<uint64_t>(tensor.storage_offset() * item);
    made.tensor.device = {DESCRIBED_HOST, device_index(tensor)};
    if (made.tensor.device.index >= 0) made.tensor.device.type = DESCRIBED_DEVICE;
    made.tensor.dims = static_cast<int32_t>(tensor.dim());
    made.tensor.element = {0, static_cast<uint8_t>(8 * item), 1};
    made.tensor.shape = const_cast<int64_t*>(tensor.sizes().data());
    made.tensor.strides = const_cast<int64_t*>(tensor.strides().data());
    made.bytes = static_cast<int64_t>(storage.nbytes());
    made.place = place;
    return made;
  }
};

} // namespace streamsan
