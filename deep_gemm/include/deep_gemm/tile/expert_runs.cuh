// Runs of one expert's rows in a contiguous layout, found by all threads of a CTA at once.
#pragma once

#include <deep_gemm/ptx/control.cuh>
#include <deep_gemm/ptx/memory.cuh>
#include <deep_gemm/tile/extents.cuh>
#include <deep_gemm/tile/group_entry.cuh>
#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

/// All of 64 rows that name an expert name the same one, mostly the first. A thread asks for its own 64 rows' expert,
/// and a warp's first and last one for their neighbours' beyond the warp too, so that memory is waited for once, and
/// again only where a first row is padding. It then knows whether a run begins or ends there; how many begin before it
/// is its run's number.
template <Constant<GemmConfig> c, int32_t kThreads>
class ExpertRuns {
public:
    /// Where entries of the group table lie, and room for a number of each warp and step (kRunCountBytes).
    DG_DEVICE ExpertRuns(const GemmParams& params, uint32_t entries, uint32_t counts)
        : layout_(params.grouped_layout),
          num_groups_(params.num_groups),
          extent_(extent_m<c>(params)),
          entries_(entries),
          counts_(counts) {}

    /// Writes each run's rows and expert into its entry, and returns how many runs there are: to all threads, which
    /// have met when it returns.
    DG_DEVICE int32_t find() const {
        const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int32_t runs = 0;
#pragma unroll 1
        for (int32_t first = 0; first * kRunRows < extent_; first += kSteps * kThreads) {
            Unit units[kSteps];
            uint32_t starts[kSteps];
#pragma unroll
            for (int32_t i = 0; i < kSteps; ++i) {
                units[i].row = (first + i * kThreads + static_cast<int32_t>(threadIdx.x)) * kRunRows;
                units[i].expert = load(units[i].row);
                const int32_t side = lane == 0 ? -kRunRows : lane == 31 ? kRunRows : 0;
                units[i].before = units[i].after = side != 0 ? load(units[i].row + side) : -1;
            }
#pragma unroll
            for (int32_t i = 0; i < kSteps; ++i) {
                Unit& unit = units[i];
                const int32_t side = lane == 0 ? -kRunRows : lane == 31 ? kRunRows : 0;
                look_further(unit.row, unit.expert);
                look_further(side != 0 ? unit.row + side : -1, unit.before);
                unit.expert = legal(unit.expert), unit.before = unit.after = legal(unit.before);
                const int32_t below = __shfl_up_sync(0xffffffff, unit.expert, 1),
                              above = __shfl_down_sync(0xffffffff, unit.expert, 1);
                if (lane != 0) unit.before = below;
                if (lane != 31) unit.after = above;
                starts[i] = __ballot_sync(0xffffffff, units[i].starts());
                if (lane == 0) ptx::store_shared_int(counts_ + (i * kWarps + warp) * 4, __popc(starts[i]));
            }
            __syncthreads();
            const int32_t count = lane < kSteps * kWarps ? ptx::load_shared_int(counts_ + lane * 4) : 0;
#pragma unroll
            for (int32_t i = 0; i < kSteps; ++i) {
                const int32_t before = runs + __reduce_add_sync(0xffffffff, lane < i * kWarps + warp ? count : 0);
                write(before + __popc(starts[i] & ((2u << lane) - 1)) - 1, units[i]);
            }
            runs += __reduce_add_sync(0xffffffff, count);
            __syncthreads();  // entries are written, and what the warps counted is read
        }
        return runs;
    }

private:
    static constexpr int32_t kWarps = kThreads / 32, kSteps = kRunSteps;
    static_assert(kRunRows == 64, "two rows a lane");
    static_assert(kSteps * kWarps <= 32, "a lane reads what one warp counted in one step");

    struct Unit {
        int32_t row;
        int32_t before, expert, after;  // -1: none, padding or beyond M
        DG_DEVICE bool starts() const { return expert >= 0 && expert != before; }
        DG_DEVICE bool ends() const { return expert >= 0 && expert != after; }
    };

    DG_DEVICE int32_t load(int32_t row) const {
        return row >= 0 && row < extent_ ? ptx::load_global_int(layout_ + row) : -1;
    }

    /// The expert of rows whose first one is padding. A warp reads the rows of each lane that wants it. What names no
    /// expert is larger, without a sign, than what does.
    DG_DEVICE void look_further(int32_t row, int32_t& expert) const {
        constexpr int32_t kAtOnce = 16;
        const int32_t lane = threadIdx.x % 32;
        uint32_t unsure = __ballot_sync(0xffffffff, row >= 0 && row < extent_ && legal(expert) < 0);
#pragma unroll 1
        while (unsure != 0) {
            // No branch: all rows are asked for before the first one's expert is there.
            int32_t asking[kAtOnce];
            uint32_t first_half[kAtOnce], second_half[kAtOnce];
#pragma unroll
            for (int32_t i = 0; i < kAtOnce; ++i) {
                asking[i] = __ffs(unsure) - 1;
                unsure &= unsure - 1;
                const int32_t first = __shfl_sync(0xffffffff, row, asking[i] & 31) + lane;
                first_half[i] = static_cast<uint32_t>(ptx::load_global_int(layout_ + within(first)));
                second_half[i] = static_cast<uint32_t>(ptx::load_global_int(layout_ + within(first + 32)));
            }
#pragma unroll
            for (int32_t i = 0; i < kAtOnce; ++i) {
                const uint32_t found = __reduce_min_sync(0xffffffff, min(first_half[i], second_half[i]));
                if (lane == asking[i]) expert = static_cast<int32_t>(found);
            }
        }
    }

    /// A row beyond M is its unit's last one.
    DG_DEVICE int32_t within(int32_t row) const { return max(0, min(row, extent_ - 1)); }

    /// What is no expert's number means padding.
    DG_DEVICE int32_t legal(int32_t expert) const {
        return static_cast<uint32_t>(expert) < static_cast<uint32_t>(num_groups_) ? expert : -1;
    }

    DG_DEVICE void write(int32_t run, const Unit& unit) const {
        if (run >= c.group_capacity) return;  // more than any legal layout has
        const uint32_t entry = entries_ + run * kGroupEntryBytes;
        if (unit.starts()) {
            ptx::store_shared_int(entry + GroupEntry::kRowBegin, unit.row);
            ptx::store_shared_int(entry + GroupEntry::kGroup, unit.expert);
        }
        if (unit.ends()) ptx::store_shared_int(entry + GroupEntry::kRowEnd, min(unit.row + kRunRows, extent_));
    }

    const int32_t* layout_;
    int32_t num_groups_, extent_;
    uint32_t entries_, counts_;
};

}  // namespace deep_gemm
