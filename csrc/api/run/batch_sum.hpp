// The sum of a batch of products: parts of the batch are multiplied side by side, and added up in order.
#pragma once

#include "../call/call.hpp"

namespace deep_gemm {

/// Such calls are not remembered. Returns false where there is nothing to sum up, so that D is C or zero: the caller
/// writes it.
bool run_batch_sum(GemmCall&& call);

}  // namespace deep_gemm
