// Named values of ours as tvm-ffi's map. For the few files that know its C++ headers, which take long to compile.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/string.h>

#include "object.hpp"

namespace deep_gemm::ffi {

using Map = tvm::ffi::Map<tvm::ffi::String, tvm::ffi::Any>;

Map to_map(const Object& object);

}  // namespace deep_gemm::ffi
