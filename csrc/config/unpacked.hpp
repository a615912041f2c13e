// Packed weights that a kernel makes rows of, once for each call, ahead of a product.
//
// With many tokens each tile along M converts all weights again, in turn with its products.
#pragma once

#include "problem.hpp"

namespace deep_gemm {

/// Of fewer tokens no product was faster so (benchmarks/results/h100_unpacked.json, h100_sm80_unpacked.json).
inline constexpr int32_t kMinUnpackedM = 512;

/// Whether such a product may be one of the problem's. Its last bits are not those of converting in the product, and
/// which is taken depends on M. The workspace is as large as the weights unpacked: not of a stack of experts. Sums of
/// codes themselves know what conversion multiplied them by (UndoConversion) where it is the product that converts.
constexpr bool may_unpack_b(const Problem& p) {
    return p.b.packed() && p.grouping == Grouping::dense && !p.batch_invariant && p.output != Element::s32;
}

/// The problem that is left: what conversion makes of weights lies as tokens do. Scales that it multiplies in leave one
/// for all of K.
inline Problem unpacked(const Problem& p) {
    Problem left = p;
    left.b = {.element = p.a.element, .scaling = p.b.scaling.in_conversion() ? kWholeRowScales : p.b.scaling};
    return left;
}

}  // namespace deep_gemm
