// A product from its record to its launch.
#pragma once

#include "../../util/ffi.hpp"

namespace deep_gemm {

/// Of arguments named as those of `ProductRecord`. A call that comes again is launched as it was. Returns what
/// `run_checked_gemm` does; and false where B is a pair of FP4 weights of which the record does not say so: the caller
/// then says it.
bool run_product(const ffi::Given& given);

}  // namespace deep_gemm
