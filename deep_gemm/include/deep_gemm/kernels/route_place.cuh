// Gives each choice its row: experts one behind the other or with a matrix each, and within an expert in the order of
// choices, whatever block or warp has them. Everything is written by one thread, so results are the same each time.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/routing/counts.cuh>

namespace deep_gemm {

template <Constant<RouteConfig> c>
struct RouteShared {
    int32_t next[kRouteWarps][c.experts];  // how many of a warp's choices; then the row of the next one
    int32_t before[c.experts];             // how many choices blocks before this one have
    int32_t total[c.experts];              // in all
    int32_t start[c.experts + 1];          // the expert's first row, behind the last one where rows end
};

/// How many choices of each expert there are, in all and before this block.
template <Constant<RouteConfig> c>
DG_DEVICE void add_up_blocks(const RouteParams& params, RouteShared<c>& shared) {
    for (int32_t expert = static_cast<int32_t>(threadIdx.x); expert < c.experts; expert += kRouteThreads) {
        int32_t total = 0, before = 0;
        if constexpr (c.one_block) {
            for (int32_t warp = 0; warp < kRouteWarps; ++warp) total += shared.next[warp][expert];
        } else if (expert < params.experts) {
#pragma unroll 8
            for (int32_t block = 0; block < params.blocks; ++block) {
                const int32_t count = ptx::load_global_int(params.block_counts + block * params.experts + expert);
                total += count;
                if (block < static_cast<int32_t>(blockIdx.x)) before += count;
            }
        }
        shared.total[expert] = total, shared.before[expert] = before;
    }
}

/// Where experts begin. One warp adds up their sizes, rounded up.
template <Constant<RouteConfig> c>
DG_DEVICE void place_experts(const RouteParams& params, RouteShared<c>& shared) {
    if constexpr (c.masked) {
        for (int32_t i = static_cast<int32_t>(threadIdx.x); i <= params.experts; i += kRouteThreads)
            shared.start[i] = i * params.rows;
    } else if (threadIdx.x < 32) {
        const int32_t lane = static_cast<int32_t>(threadIdx.x);
        int32_t begin = 0;
#pragma unroll 1
        for (int32_t first = 0; first < c.experts; first += 32) {
            const int32_t size =
                (shared.total[first + lane] + params.alignment - 1) / params.alignment * params.alignment;
            int32_t end = size;
#pragma unroll
            for (int32_t distance = 1; distance < 32; distance *= 2) {
                const int32_t other = __shfl_up_sync(0xffffffff, end, distance);
                if (lane >= distance) end += other;
            }
            shared.start[first + lane] = min(begin + end - size, params.rows);
            begin += __shfl_sync(0xffffffff, end, 31);
        }
        if (lane == 0) shared.start[c.experts] = min(begin, params.rows);
    }
}

/// A row that is no choice's.
template <Constant<RouteConfig> c>
DG_DEVICE void clear_row(const RouteParams& params, int32_t row) {
    params.source[row] = -1;
    if constexpr (c.indices) params.indices[row] = -1;
    if constexpr (c.weights) params.row_weights[row] = 0.0f;
}

/// Each expert's rows behind its choices, and what is behind all experts.
template <Constant<RouteConfig> c>
DG_DEVICE void clear_rows(const RouteParams& params, const RouteShared<c>& shared) {
    const int32_t warp = static_cast<int32_t>(blockIdx.x * kRouteWarps + threadIdx.x / 32),
                  lane = static_cast<int32_t>(threadIdx.x % 32), warps = params.blocks * kRouteWarps;
    for (int32_t expert = warp; expert < params.experts; expert += warps) {
        const int32_t end = shared.start[expert + 1];
        for (int32_t row = min(shared.start[expert] + shared.total[expert], end) + lane; row < end; row += 32)
            clear_row<c>(params, row);
    }
    if constexpr (!c.masked)
        for (int32_t row = shared.start[params.experts] + warp * 32 + lane; row < params.rows; row += warps * 32)
            clear_row<c>(params, row);
}

template <Constant<RouteConfig> c>
DG_DEVICE void run_route_place(const RouteParams& params) {
    __shared__ RouteShared<c> shared;
    const int32_t thread = static_cast<int32_t>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    for (int32_t i = thread; i < kRouteWarps * c.experts; i += kRouteThreads)
        shared.next[i / c.experts][i % c.experts] = 0;
    ptx::wait_for_previous_grid();
    __syncthreads();
    count_choices<c>(params, shared.next[warp]);
    __syncthreads();
    add_up_blocks<c>(params, shared);
    __syncthreads();
    place_experts<c>(params, shared);
    __syncthreads();
    for (int32_t expert = thread; expert < c.experts; expert += kRouteThreads) {
        int32_t row = shared.start[expert] + shared.before[expert];
        for (int32_t other = 0; other < kRouteWarps; ++other) {
            const int32_t count = shared.next[other][expert];
            shared.next[other][expert] = row;
            row += count;
        }
        if (blockIdx.x == 0 && expert < params.experts) {
            const int32_t places = shared.start[expert + 1] - shared.start[expert],
                          rows = min(shared.total[expert], places);
            params.counts[expert] = shared.total[expert];
            params.ends[expert] = c.masked ? rows : shared.start[expert] + rows;
        }
    }
    __syncthreads();
    const int32_t first = first_choice() + lane;
#pragma unroll
    for (int32_t i = 0; i < kRouteSteps; ++i) {
        // Read once more: held since they were counted, they would spill.
        const int32_t choice = first + i * 32, expert = expert_of<c>(params, choice);
        const bool chosen = expert < c.experts;
        const uint32_t same = __match_any_sync(0xffffffff, expert);  // lanes that have it too
        const int32_t rank = __popc(same & ((1u << lane) - 1));
        int32_t row = chosen ? shared.next[warp][expert] + rank : -1;
        __syncwarp();
        if (chosen && rank == 0) shared.next[warp][expert] = row + __popc(same);
        __syncwarp();
        if (chosen && row >= shared.start[expert + 1]) row = -1;  // no place is left
        if (choice < params.choices) params.row_of[choice] = row;
        if (row >= 0) {
            params.source[row] = choice;
            if constexpr (c.indices) params.indices[row] = expert;
            if constexpr (c.weights) params.row_weights[row] = params.weights[choice];
        }
    }
    clear_rows<c>(params, shared);
}

}  // namespace deep_gemm
