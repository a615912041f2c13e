// Descriptors of tcgen05.mma: of an operand in shared memory, and of the instruction.
#pragma once

#include "matrix_unit.hpp"
#include "tensor_memory.hpp"

namespace deep_gemm::simulator {

enum class TensorKind : uint32_t { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };

/// What an instruction descriptor says, for its kind.
struct ProductShape {
    Type a = Type::none, b = Type::none, d = Type::none;
    unsigned m = 0, n = 0;
    bool negate_a = false, negate_b = false, mn_major_a = false, mn_major_b = false, saturate = false;
    Type scale = Type::none;  // of block-scaled kinds: e4m3 or ue8m0x2, which stands for one exponent
    unsigned scale_id_a = 0, scale_id_b = 0;
};

bool has_block_scales(TensorKind kind);
/// False after a report: the descriptor is not one of this kind.
bool decode_descriptor(Warp& w, TensorKind kind, bool pair, uint32_t descriptor, ProductShape& shape);
/// A shared-memory descriptor; false after a report.
bool tensor_layout(Warp& w, uint64_t descriptor, OperandLayout& layout);

}  // namespace deep_gemm::simulator
