// Math warpgroups issue a K block's wgmma one after the other.
//
// The tensor cores take instructions of several warps alternately. Two warpgroups that issue at the same time thus end
// at the same time, at the end of both K blocks, and promote at the same time, with nothing left to multiply. One that
// issues behind the other ends behind it, and always has the other's K block to promote under.
#pragma once

#include <deep_gemm/arch/sm90_memory.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// One warpgroup's view. All of them issue equally often, in the same order.
template <Constant<GemmConfig> c>
class IssueOrder {
public:
    static constexpr bool kOrdered = issues_in_order(c);
    static_assert(!kOrdered || c.split_k.warpgroups == 1, "all issue equally often");

    DG_DEVICE explicit IssueOrder(int32_t warpgroup)
        : own_(kFirst + warpgroup), next_(warpgroup == c.sm90.math_warpgroups - 1 ? kFirst : own_ + 1) {
        if (next_ == kFirst) pass();  // the first one may begin
    }

    DG_DEVICE void wait() const {
        if constexpr (kOrdered) ptx::named_barrier_wait(own_, kThreads);
    }

    /// The next warpgroup may issue.
    DG_DEVICE void pass() const {
        if constexpr (kOrdered) ptx::named_barrier_arrive(next_, kThreads);
    }

    /// Only the first one has begun, and the others wait until its block is over: from there on they are a block apart.
    DG_DEVICE bool leads() const { return kOrdered && own_ == kFirst; }

    /// When nothing will be issued any more: the last one has passed to the first.
    DG_DEVICE void end() const {
        if (own_ == kFirst) wait();
    }

private:
    static constexpr int32_t kFirst = 1, kThreads = 256;  // barrier 0 is __syncthreads'; two warpgroups meet at each
    int32_t own_, next_;                                  // barriers
};

}  // namespace deep_gemm
