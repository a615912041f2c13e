// Leaves the tensor cores idle for a part of the time (set_tc_util): for power limits, and for what runs beside the
// kernel.
#pragma once

#include <deep_gemm/config.cuh>
#include <deep_gemm/ptx/control.cuh>

namespace deep_gemm {

/// The load role waits here before each K block, so that no more blocks arrive than the share allows. A block keeps the
/// tensor cores busy for so many cycles.
template <Constant<GemmConfig> c, int32_t kBusyCycles>
class Pacer {
public:
    DG_DEVICE void wait() {
        if constexpr (c.tensor_core_percent < 100) {
            int64_t now = ptx::clock_cycles();
            while (now < next_) {
                ptx::sleep_nanoseconds(32);
                now = ptx::clock_cycles();
            }
            next_ = (now > next_ + kBusyCycles ? now : next_) + kBusyCycles * 100 / c.tensor_core_percent;
        }
    }

private:
    int64_t next_ = 0;
};

}  // namespace deep_gemm
