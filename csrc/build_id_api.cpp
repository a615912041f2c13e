// Which Python files this library goes with: see deep_gemm/_extension.py. setup.py writes build_id.hpp.
#include "../build/native/build_id.hpp"

#include <string>

#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

std::string build_id() { return DEEP_GEMM_BUILD_ID; }

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(build_id, deep_gemm::build_id);
