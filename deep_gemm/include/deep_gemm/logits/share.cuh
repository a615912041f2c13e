// Dealing the tiles of all atoms to CTAs: each gets a run of equal cost, whatever the rows see. Lengths lie on the
// device, so each CTA counts them by itself.
#pragma once

#include <deep_gemm/logits/rows.cuh>
#include <deep_gemm/ptx/memory.cuh>

namespace deep_gemm {

/// Where a CTA's part begins of so much cost in all, and how much it is.
struct LogitsPart {
    int64_t begin, size;
};

template <typename Unsigned>
DG_DEVICE LogitsPart part_of_cta(Unsigned total) {
    const Unsigned each = total / gridDim.x, more = total % gridDim.x;
    return {static_cast<int64_t>(each * blockIdx.x + min(Unsigned{blockIdx.x}, more)),
            static_cast<int64_t>(each + (blockIdx.x < more ? 1 : 0))};
}

/// The share that begins among the atoms of a thread from `first` on, before which lies so much.
template <Constant<LogitsConfig> c>
DG_DEVICE LogitsShare share_among(int32_t first, const LogitsPart& part, int64_t before, const LogitsParams& p) {
    int64_t left = part.begin - before;
#pragma unroll 1
    for (int32_t atom = first;; ++atom) {
        const KeyRange keys = keys_of_atom<c>(atom, p);
        const int32_t of_atom = cost(keys);
        if (left < of_atom) return {atom, static_cast<int32_t>(left), part.size, keys};
        left -= of_atom;
    }
}

/// The sum over a warp's lanes up to this one, which it includes.
template <typename Number>
DG_DEVICE Number sum_up_to_lane(Number sum, int32_t lane) {
#pragma unroll
    for (int32_t distance = 1; distance < 32; distance *= 2) {
        const Number other = __shfl_up_sync(0xffffffff, sum, distance);
        if (lane >= distance) sum += other;
    }
    return sum;
}

/// Of few atoms: each warp finds the share by itself, and none waits for another.
template <Constant<LogitsConfig> c>
DG_DEVICE LogitsShare share_by_warp(const LogitsParams& p) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32, each = ceil_div(p.atoms, 32);
    const int32_t first = min(lane * each, p.atoms), last = min(first + each, p.atoms);
    uint32_t mine = 0;
#pragma unroll 1
    for (int32_t atom = first; atom < last; ++atom) mine += static_cast<uint32_t>(cost(keys_of_atom<c>(atom, p)));
    const uint32_t up_to = sum_up_to_lane(mine, lane), total = __shfl_sync(0xffffffff, up_to, 31);
    const LogitsPart part = part_of_cta(total);
    LogitsShare share;
    const bool is_mine = part.size > 0 && part.begin >= up_to - mine && part.begin < up_to;
    if (is_mine) share = share_among<c>(first, part, up_to - mine, p);
    const uint32_t finder = __ballot_sync(0xffffffff, is_mine);
    if (finder == 0) return {};
    const int32_t from = __ffs(static_cast<int32_t>(finder)) - 1;
    const auto known = [from](int32_t value) { return __shfl_sync(0xffffffff, value, from); };
    return {known(share.atom), known(share.place), part.size, {known(share.keys.first), known(share.keys.end)}};
}

/// By all threads of the CTA, a whole number of warps, of which some want to know. Has a barrier of all of them.
template <Constant<LogitsConfig> c, int32_t kThreads>
DG_DEVICE LogitsShare share_of_cta(ShareSmem& smem, bool wanted, const LogitsParams& p) {
    if (p.atoms <= kLogitsAtomsOfWarp) {
        const LogitsShare share = wanted ? share_by_warp<c>(p) : LogitsShare{};
        __syncthreads();
        return share;
    }
    constexpr int32_t kWarps = kThreads / 32;
    const int32_t thread = static_cast<int32_t>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    const int32_t each = ceil_div(p.atoms, kThreads);
    const int32_t first = min(thread * each, p.atoms), last = min(first + each, p.atoms);
    int64_t mine = 0;
#pragma unroll 1
    for (int32_t atom = first; atom < last; ++atom) mine += cost(keys_of_atom<c>(atom, p));
    int64_t before = sum_up_to_lane(mine, lane);  // with those of the threads of the warp before this one
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
    const LogitsPart part = part_of_cta(static_cast<uint64_t>(total));
    if (part.size > 0 && part.begin >= before && part.begin < before + mine)
        smem.share = share_among<c>(first, part, before, p);
    __syncthreads();
    return smem.share;
}

/// A part of the share: tiles of one atom.
struct LogitsSegment {
    int32_t atom, first_key, tiles;
    int32_t end_key;  // behind the last that a row of the atom sees
};

/// Walks a share, the same in each warp.
template <Constant<LogitsConfig> c>
class ShareWalk {
public:
    DG_DEVICE explicit ShareWalk(const LogitsShare& share) : share_(share) {}

    /// What an atom costs beside its tiles is where it begins.
    DG_DEVICE bool next(LogitsSegment& segment, int32_t lane, const LogitsParams& p) {
        while (share_.left > 0) {
            const KeyRange keys = known_ ? share_.keys : keys_of_atom<c>(share_.atom, lane, p);
            known_ = false;
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
    bool known_ = true;  // what the next atom sees
};

}  // namespace deep_gemm
