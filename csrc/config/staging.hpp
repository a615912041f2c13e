// How D leaves where there is a copy engine.
#pragma once

#include "problem.hpp"

namespace deep_gemm {

/// Whether no chunk of so many columns that the copy engine stores has some on both sides of a gap between heads, and
/// all start at multiples of 16 bytes.
inline bool fits_chunks(const HeadSplits& heads, Element output, int32_t columns) {
    return (heads.left | heads.right) % columns == 0 && bytes_of(output, heads.skipped) % 16 == 0;
}

/// In chunks of so many columns, or from registers: bytes always. FP32 of M groups is written row by row, so that a
/// masked D keeps what is behind its groups' rows.
inline StoreKind store_kind(const Problem& p, int32_t chunk_columns) {
    const bool staged = p.aligned_store && bits(p.output) > 8 && fits_chunks(p.heads, p.output, chunk_columns) &&
                        (bits(p.output) == 16 || !is_m_grouped(p.grouping));
    if (adds_in_place(p)) return staged ? StoreKind::tma_add : StoreKind::direct_add;
    return staged ? StoreKind::tma : StoreKind::direct;
}

}  // namespace deep_gemm
