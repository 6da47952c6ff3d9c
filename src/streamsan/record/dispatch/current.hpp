// What is current in the calling thread, for the compiled core: see ../compiled/bridge.h.

#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/function.h>

#include <exception>

#include "../compiled/bridge.h"

namespace streamsan {

#ifdef STREAMSAN_HOST_AS_DEVICE // for tests, where there is none
inline int current_device() { return 0; }
inline int64_t stream_of_test = 0;
inline int64_t current_stream(int) { return stream_of_test; }
#else
inline const c10::impl::DeviceGuardImplInterface* devices() {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
}

inline int current_device() {
  try {
    return devices()->getDevice().index();
  } catch (const std::exception&) {
    return -1;
  }
}

inline int64_t current_stream(int device) {
  try {
    const auto index = static_cast<c10::DeviceIndex>(device);
    return devices()->getStream({c10::DeviceType::CUDA, index}).id();
  } catch (const std::exception&) {
    return -1;
  }
}
#endif

inline int in_backward() { return torch::autograd::get_current_node() != nullptr; }

inline constexpr Current current = {current_device, current_stream, in_backward};

} // namespace streamsan
