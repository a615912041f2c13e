// Hopper: packed weights that are made E4M3 ahead of a product of FP8.
//
// E4M3 holds what conversion makes of them, and FP8's kernels multiply scales for each row and 128 of K.
#pragma once

#include "../unpacked.hpp"

namespace deep_gemm::sm90 {

/// Whether sums of packed weights are multiplied by products of two scales, as FP8's are with scales per row: tokens'
/// scales are for 128 of K as well. (With one a token, FP8's kernels gain nothing on conversion.)
inline bool has_scale_products(const Problem& p) {
    return p.b.packed() && p.a.element == Element::e4m3 && p.a.scaling == kRowScales && p.b.scaling == kRowScales;
}

/// Whether such a product is one of the problem's.
inline bool may_multiply_unpacked(const Problem& p) { return has_scale_products(p) && may_unpack_b(p); }

/// Microseconds of unpacking: half a byte read and one written for each weight (h100_unpacked.json, like what follows).
inline double unpack_us(const Problem& p) {
    constexpr double kLaunchUs = 1, kBytesPerUs = 3.1e6;
    return kLaunchUs + 1.5 * p.n * p.k / kBytesPerUs;
}

/// What converting in the product takes beside products of scales, of what the model says: it has them from FP8.
inline constexpr double kConvertedShare = 0.8;

}  // namespace deep_gemm::sm90
