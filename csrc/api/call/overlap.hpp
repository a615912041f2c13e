// Whether two tensors share memory. A product that wrote where it still reads would be wrong and say nothing.
//
// Exact for every tensor whose dimensions nest, as those of views of a buffer do: interleaved columns are told apart. A
// tensor that has elements twice, in other ways than by a stride of 0, counts as all bytes from its first to its last.
#pragma once

#include "tensors.hpp"

namespace deep_gemm {

bool share_memory(const TensorView& x, const TensorView& y);

/// D is written while the others are read.
void require_apart(const TensorView& d, const TensorView& other, const char* name);

/// C may be D itself, element for element.
void require_apart_or_same(const TensorView& d, const TensorView& c);

}  // namespace deep_gemm
