// Adds to an FP32 matrix in memory, or writes it, tile by tile, as the store role of a weight gradient does: what memory
// gives to D when nothing else is to be done.
//
// The host puts the constants in front: kHow (below), kGroups (groups of stores under way), kHint (0: normal, 1: D's
// lines leave the L2 first), kAhead (the L2 is asked for 16 rows of a tile so many such shares before they are added to;
// -1: not), kEvery (of so many boxes side by side for one), kTileCols.
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/ptx/tma.cuh>

using namespace deep_gemm;

struct How {
    enum { add, store, fetch, threads_add, threads_reduce };
};

struct TensorMap {
    alignas(64) uint64_t words[16];
};

struct Params {
    float* data;
    int64_t cols;
    int64_t blocks_m;  // tiles along M; CTAs side by side take tiles along M
    int64_t blocks_n;
    TensorMap map;
};

constexpr int kTileRows = 128, kPartRows = 16;                         // a warp's share of a tile
constexpr int kParts = kTileRows / kPartRows, kBoxes = kTileCols / 32;  // boxes of 16 rows of 128 bytes
constexpr int kBoxBytes = kPartRows * 128, kPartBytes = kBoxes * kBoxBytes;
constexpr int kSlots = 64 * 1024 * 2 / kPartBytes;  // of parts, for what is fetched

__device__ __forceinline__ void store_part(const TensorMap* map, uint32_t source, int x, int y) {
    constexpr uint64_t kPolicy = static_cast<uint64_t>(kHint ? ptx::CacheHint::evict_first : ptx::CacheHint::normal);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
        if constexpr (kHow == How::add && kHint)
            asm volatile(
                "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group.L2::cache_hint [%0, {%2, %3, %4}], "
                "[%1], %5;" ::"l"(map),
                "r"(source + box * kBoxBytes), "r"(x + box * 32), "r"(y), "r"(0), "l"(kPolicy)
                : "memory");
        else if constexpr (kHow == How::add)
            ptx::add_box(map, source + box * kBoxBytes, x + box * 32, y, 0);
        else if constexpr (kHint)
            asm volatile(
                "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3, %4}], [%1], "
                "%5;" ::"l"(map),
                "r"(source + box * kBoxBytes), "r"(x + box * 32), "r"(y), "r"(0), "l"(kPolicy)
                : "memory");
        else
            ptx::store_box(map, source + box * kBoxBytes, x + box * 32, y, 0);
    ptx::commit_stores();
}

__device__ __forceinline__ void prefetch_part(const TensorMap* map, int x, int y) {
#pragma unroll
    for (int box = 0; box < kBoxes; box += kEvery) ptx::prefetch_box(map, x + box * 32, y, 0);
}

/// Part `i` of this CTA, of which tile, and where.
__device__ __forceinline__ void place(const Params& params, int i, int& x, int& y) {
    const int tile = blockIdx.x + i / kParts * gridDim.x, blocks_m = params.blocks_m;
    x = tile / blocks_m * kTileCols;
    y = tile % blocks_m * kTileRows + i % kParts * kPartRows;
}

extern "C" __global__ void add(const __grid_constant__ Params params) {
    extern __shared__ uint8_t dynamic[];
    const int tiles_all = params.blocks_m * params.blocks_n;
    const int tiles = (tiles_all - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                      static_cast<int>(gridDim.x);
    if constexpr (kHow == How::threads_add || kHow == How::threads_reduce) {
        // A warp's row of a tile is 512 bytes, sixteen bytes a lane; several rows under way.
        constexpr int kLanes = kTileCols / 4, kRowsAtOnce = 4;
        const int lane = threadIdx.x % kLanes, first = threadIdx.x / kLanes, step = blockDim.x / kLanes;
        for (int tile = 0; tile < tiles; ++tile) {
            int x, y;
            place(params, tile * kParts, x, y);
            for (int row = first; row < kTileRows; row += kRowsAtOnce * step) {
                float* at[kRowsAtOnce];
                for (int j = 0; j < kRowsAtOnce; ++j) at[j] = params.data + (y + row + j * step) * params.cols + x + lane * 4;
                if constexpr (kHow == How::threads_add) {
                    float4 v[kRowsAtOnce];
#pragma unroll
                    for (int j = 0; j < kRowsAtOnce; ++j) v[j] = *reinterpret_cast<const float4*>(at[j]);
#pragma unroll
                    for (int j = 0; j < kRowsAtOnce; ++j)
                        *reinterpret_cast<float4*>(at[j]) =
                            make_float4(v[j].x + 1.0f, v[j].y + 1.0f, v[j].z + 1.0f, v[j].w + 1.0f);
                } else {
#pragma unroll
                    for (int j = 0; j < kRowsAtOnce; ++j) {
                        ptx::add_global_x2(at[j], 1.0f, 1.0f);
                        ptx::add_global_x2(at[j] + 2, 1.0f, 1.0f);
                    }
                }
            }
        }
        return;
    }
    const uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023u, barriers = base + kSlots * kPartBytes;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < kSlots; ++slot) ptx::barrier_init(barriers + slot * 8, 1);
        ptx::fence_barrier_init();
    }
    for (int i = threadIdx.x; i < kSlots * kPartBytes / 4; i += blockDim.x) ptx::store_shared(base + i * 4, 1.0f);
    ptx::fence_for_async_proxy();
    __syncthreads();
    if (threadIdx.x >= 32 || !ptx::elect_one()) return;
    const int parts = tiles * kParts;
    int x, y;
    if constexpr (kHow == How::fetch) {
        const auto request = [&](int i) {
            place(params, i, x, y);
            const int slot = i % kSlots;
            ptx::barrier_arrive_expect(barriers + slot * 8, kPartBytes);
            for (int box = 0; box < kBoxes; ++box)
                ptx::load_box(base + slot * kPartBytes + box * kBoxBytes, &params.map, barriers + slot * 8,
                              x + box * 32, y, 0, kHint ? ptx::CacheHint::evict_first : ptx::CacheHint::normal);
        };
        for (int i = 0; i < kSlots / 2 && i < parts; ++i) request(i);
        for (int i = 0; i < parts; ++i) {
            const int slot = i % kSlots;
            ptx::barrier_wait(barriers + slot * 8, i / kSlots % 2);
            place(params, i, x, y);
            store_part(&params.map, base + slot * kPartBytes, x, y);
            // What is asked for next lands where the store of kSlots / 2 parts ago was.
            ptx::wait_stores_read<kSlots / 2 - 1>();
            if (i + kSlots / 2 < parts) request(i + kSlots / 2);
        }
    } else {
        for (int i = 0; i < parts; ++i) {
            if (kAhead >= 0 && i + kAhead < parts) {
                place(params, i + kAhead, x, y);
                prefetch_part(&params.map, x, y);
            }
            place(params, i, x, y);
            store_part(&params.map, base + i % kSlots * kPartBytes, x, y);
            ptx::wait_stores_read<kGroups - 1>();
        }
    }
    ptx::wait_stores<0>();
}
