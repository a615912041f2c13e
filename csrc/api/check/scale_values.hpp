// FP32 scales where the kernel multiplies exponents: what is no power of two is refused, where the host may read it
// without waiting, which is on the CPU. On a GPU the packing kernel makes NaN of it. Rounding would change what the
// data mean.
#pragma once

#include "../call/call.hpp"

namespace deep_gemm {

/// Scales of rows that count. Nothing may have been launched or written yet.
void check_scale_values(const GemmCall& call);

}  // namespace deep_gemm
