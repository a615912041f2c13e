// Math warpgroups issue a K block's wgmma one after the other.
//
// The tensor cores take instructions of several warps alternately. Two warpgroups that issue at the same time thus end
// at the same time, at the end of both K blocks, and promote at the same time, with nothing left to multiply. One that
// issues behind the other ends behind it, and always has the other's K block to promote under.
#pragma once

#include <deep_gemm/plan.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// One warpgroup's view. All of them issue equally often, in the same order.
template <GemmConfig c>
class IssueOrder {
public:
    static constexpr bool kOrdered = issues_in_order(c);
    static_assert(!kOrdered || c.k_warpgroups == 1, "all issue equally often");

    DG_DEVICE explicit IssueOrder(int32_t warpgroup) : warpgroup_(warpgroup) {
        if (warpgroup == c.math_warpgroups - 1) pass();  // the first one may begin
    }

    DG_DEVICE void wait() const {
        if constexpr (kOrdered) ptx::named_barrier_wait(kFirst + warpgroup_, kThreads);
    }

    /// The next warpgroup may issue.
    DG_DEVICE void pass() const {
        if constexpr (kOrdered)
            ptx::named_barrier_arrive(warpgroup_ == c.math_warpgroups - 1 ? kFirst : kFirst + warpgroup_ + 1, kThreads);
    }

    /// When nothing will be issued any more: the last one has passed to the first.
    DG_DEVICE void end() const {
        if (warpgroup_ == 0) wait();
    }

private:
    static constexpr int32_t kFirst = 1, kThreads = 256;  // barrier 0 is __syncthreads'; two warpgroups meet at each
    int32_t warpgroup_;
};

}  // namespace deep_gemm
