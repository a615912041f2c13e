// Dealing the tiles of all atoms to CTAs: each gets a run of equally many, whatever the rows see. Lengths lie on the
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
    for (int32_t atom = first; atom < last; ++atom) mine += keys_of_atom<c>(atom, p).tiles();
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
            const int32_t tiles = keys_of_atom<c>(atom, p).tiles();
            if (left < tiles) break;
            left -= tiles, ++atom;
        }
        smem.share = {atom, static_cast<int32_t>(left), static_cast<int32_t>(end - begin)};
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

    DG_DEVICE bool next(LogitsSegment& segment, int32_t lane, const LogitsParams& p) {
        while (share_.tiles > 0) {
            const KeyRange keys = keys_of_atom<c>(share_.atom, lane, p);
            const int32_t left = keys.tiles() - share_.tile;
            segment = {share_.atom, keys.first + share_.tile * kLogitsTile, min(left, share_.tiles), keys.end};
            ++share_.atom, share_.tile = 0;
            if (left <= 0) continue;  // an atom that sees nothing
            share_.tiles -= segment.tiles;
            return true;
        }
        return false;
    }

private:
    LogitsShare share_;
};

}  // namespace deep_gemm
