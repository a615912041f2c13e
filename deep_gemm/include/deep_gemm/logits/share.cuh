// Dealing the tiles of all atoms to CTAs: each gets a run of equal cost, whatever the rows see. Lengths lie on the
// device, so each CTA counts them by itself.
#pragma once

#include <deep_gemm/logits/rows.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// By all threads of the CTA, a whole number of warps. Ends with a barrier of all of them.
template <LogitsConfig c, int32_t kThreads>
DG_DEVICE LogitsShare share_of_cta(ShareSmem& smem, const LogitsParams& p) {
    constexpr int32_t kWarps = kThreads / 32;
    const int32_t thread = static_cast<int32_t>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    const int32_t each = ceil_div(p.atoms, kThreads);
    const int32_t first = min(thread * each, p.atoms), last = min(first + each, p.atoms);
    int64_t mine = 0;
    for (int32_t atom = first; atom < last; ++atom) mine += cost(keys_of_atom<c>(atom, p));
    int64_t before = mine;  // with those of the threads of the warp before this one
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
        const int64_t other = __shfl_up_sync(0xffffffff, before, distance);
        if (lane >= distance) before += other;
    }
    if (lane == 31) smem.warp_sums[warp] = before;
    if (thread == 0) smem.share = {};
    __syncthreads();
    before -= mine;
    int64_t total = 0;
#pragma unroll
    for (int32_t i = 0; i < kWarps; ++i) {
        if (i == warp) before += total;
        total += smem.warp_sums[i];
    }
    const int64_t begin = total * blockIdx.x / gridDim.x, end = total * (blockIdx.x + 1) / gridDim.x;
    if (begin < end && begin >= before && begin < before + mine) {
        int32_t atom = first;
        int64_t left = begin - before;
        while (true) {
            const int32_t of_atom = cost(keys_of_atom<c>(atom, p));
            if (left < of_atom) break;
            left -= of_atom, ++atom;
        }
        smem.share = {atom, static_cast<int32_t>(left), end - begin};
    }
    __syncthreads();
    return smem.share;
}

/// A part of the share: tiles of one atom.
struct LogitsSegment {
    int32_t atom, first_key, tiles;
    int32_t end_key;  // behind the last that a row of the atom sees
};

/// Walks a share, the same in each warp.
template <LogitsConfig c>
class ShareWalk {
public:
    DG_DEVICE explicit ShareWalk(const LogitsShare& share) : share_(share) {}

    /// What an atom costs beside its tiles is where it begins.
    DG_DEVICE bool next(LogitsSegment& segment, int32_t lane, const LogitsParams& p) {
        while (share_.left > 0) {
            const KeyRange keys = keys_of_atom<c>(share_.atom, lane, p);
            const int32_t end = static_cast<int32_t>(min(share_.place + share_.left, int64_t{cost(keys)}));
            const int32_t first_tile = max(share_.place - kLogitsAtomTiles, 0), end_tile = end - kLogitsAtomTiles;
            segment = {share_.atom, keys.first + first_tile * kLogitsTile, end_tile - first_tile, keys.end};
            share_.left -= end - share_.place;
            ++share_.atom, share_.place = 0;
            if (segment.tiles > 0) return true;
        }
        return false;
    }

private:
    LogitsShare share_;
};

}  // namespace deep_gemm
