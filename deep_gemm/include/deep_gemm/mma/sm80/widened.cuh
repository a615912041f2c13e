// E4M3 where the tensor cores have none: FP16 for them, in registers.
#pragma once

#include <deep_gemm/arch/sm80_smem.cuh>
#include <deep_gemm/convert/bytes.cuh>
#include <deep_gemm/mma/sm80/warp_place.cuh>

namespace deep_gemm::sm80 {

/// Rows or columns of half the bits: a step of theirs is two of what they are converted to. While one is converted, the
/// next is on its way.
template <Constant<GemmConfig> c, typename Narrow>
class Widened {
public:
    using Words = typename Narrow::Words;

    DG_DEVICE Widened(uint32_t stage, const WarpPlace<c>& place) : narrow_(stage, place) {}

    DG_DEVICE void look_ahead(int32_t bytes) { narrow_.look_ahead(bytes); }
    DG_DEVICE void enter() { narrow_.enter(); }
    DG_DEVICE void load(int32_t step, Words&) {
        if (step % 2 == 0) narrow_.load(step / 2, words_[step / 2 % 2]);
    }
    DG_DEVICE void begin_block(const Smem<c>& smem, int32_t stage) { narrow_.begin_block(smem, stage); }
    DG_DEVICE void convert(Words& to, int32_t step) {
        Words& words = words_[step / 2 % 2];
        if (step % 2 == 0) narrow_.convert(words, step / 2);
        constexpr int32_t kOthers = sizeof(to[0]) / sizeof(to[0][0]) / 2;  // registers of the other 8 of K
#pragma unroll
        for (int32_t piece = 0; piece < static_cast<int32_t>(sizeof(to) / sizeof(to[0])); ++piece)
#pragma unroll
            for (int32_t i = 0; i < kOthers; ++i)
                Convert<Element::e4m3, Element::fp16>::run(words[piece][step % 2 * kOthers + i], to[piece][i],
                                                           to[piece][kOthers + i]);
    }

private:
    Narrow narrow_;
    Words words_[2];
};

}  // namespace deep_gemm::sm80
