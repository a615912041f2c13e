// Which keys query rows see.
#pragma once

#include <deep_gemm/logits/config.cuh>

namespace deep_gemm {

/// The rows of an atom, and where keys are paged, whose they are.
struct AtomRows {
    int32_t first, count, request;
};

/// Mostly a request is an atom: nothing waits for a division then.
DG_DEVICE int32_t request_of_atom(int32_t atom, const LogitsParams& p) {
    return p.atoms_per_request == 1 ? atom : atom / p.atoms_per_request;
}

template <Constant<LogitsConfig> c>
DG_DEVICE AtomRows rows_of_atom(int32_t atom, const LogitsParams& p) {
    if constexpr (c.paged) {
        const int32_t request = request_of_atom(atom, p), part = atom - request * p.atoms_per_request;
        const int32_t begin = part * c.cta_rows();
        return {request * p.rows_per_request + begin, min(c.cta_rows(), p.rows_per_request - begin), request};
    } else {
        const int32_t begin = atom * c.cta_rows();
        return {begin, min(c.cta_rows(), p.rows - begin), 0};
    }
}

/// Of one row, of a request where keys are paged. An end before the start, or beyond what there is, is none of ours to
/// trust.
template <Constant<LogitsConfig> c>
DG_DEVICE KeyRange keys_of_row(int32_t row, int32_t request, const LogitsParams& p) {
    if constexpr (c.paged) {
        const int32_t end =
            p.row_lengths ? p.end_keys[row] : p.end_keys[request] - ((request + 1) * p.rows_per_request - 1 - row);
        return {0, min(max(end, 0), min(p.columns, p.keys_in_all))};
    } else {
        const int32_t first = max(p.first_keys[row], 0);
        int32_t end = min(p.end_keys[row], p.keys_in_all);
        if (p.compressed && first < end) end = min(end - first, p.columns) + first;
        return {first, end};
    }
}

/// What the rows of an atom see together, from a multiple of 8 on: lines of logits are written in whole sectors. By one
/// thread.
template <Constant<LogitsConfig> c>
DG_DEVICE KeyRange keys_of_atom(int32_t atom, const LogitsParams& p) {
    const AtomRows rows = rows_of_atom<c>(atom, p);
    KeyRange all{0x7fffffff, 0};
    // Their loads are on their way together.
    constexpr int32_t kAtOnce = c.cta_rows() < 16 ? c.cta_rows() : 16;
#pragma unroll kAtOnce
    for (int32_t i = 0; i < rows.count; ++i) {
        const KeyRange keys = keys_of_row<c>(rows.first + i, rows.request, p);
        if (keys.empty()) continue;
        all.first = min(all.first, keys.first), all.end = max(all.end, keys.end);
    }
    if (all.empty()) return {0, 0};
    return {all.first & ~7, all.end};
}

/// The same by all lanes of a warp.
template <Constant<LogitsConfig> c>
DG_DEVICE KeyRange keys_of_atom(int32_t atom, int32_t lane, const LogitsParams& p) {
    const AtomRows rows = rows_of_atom<c>(atom, p);
    KeyRange all{0x7fffffff, 0};
#pragma unroll 1
    for (int32_t i = lane; i < rows.count; i += 32) {
        const KeyRange keys = keys_of_row<c>(rows.first + i, rows.request, p);
        if (!keys.empty()) all.first = min(all.first, keys.first), all.end = max(all.end, keys.end);
    }
    all.first = __reduce_min_sync(0xffffffff, all.first), all.end = __reduce_max_sync(0xffffffff, all.end);
    if (all.empty()) return {0, 0};
    return {all.first & ~7, all.end};
}

}  // namespace deep_gemm
