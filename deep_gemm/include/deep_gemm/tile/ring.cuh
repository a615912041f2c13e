// A position in the ring of stages: which stage, and the parity of the pass over the ring.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm {

template <int32_t kStages>
struct Ring {
    int32_t stage = 0;
    uint32_t phase = 0;

    DG_DEVICE void advance() {
        if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
        }
    }

    /// So many stages ago, as many as there are at most.
    DG_DEVICE Ring back(int32_t stages) const {
        const int32_t found = stage - stages;
        return {found < 0 ? found + kStages : found, found < 0 ? phase ^ 1 : phase};
    }

    /// Over several stages at once.
    DG_DEVICE void advance(int32_t stages) {
        stage += stages;
        while (stage >= kStages) {
            stage -= kStages;
            phase ^= 1;
        }
    }
};

}  // namespace deep_gemm
