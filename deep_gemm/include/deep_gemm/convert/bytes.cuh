// FP8 to what tensor cores without FP8 multiply, in registers.
#pragma once

#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/ptx/convert.cuh>

namespace deep_gemm {

/// 2^-8 of the value: exponent and mantissa where FP16 has them, of which the biases differ by 8. All of them are
/// exact, the least being subnormal in both. Bytes 0 and 1 of the word, then 2 and 3.
template <>
struct Convert<Element::e4m3, Element::fp16> {
    static constexpr float kUndone = 65536;  // of a product of two
    /// Bits of 2^15: those that are converted ahead become 2^7 of their values, as much as FP16 holds of E4M3, and
    /// products with the others a half.
    static constexpr uint32_t kAhead = 0x7800, kAheadUndone = 2;

    static DG_DEVICE void run(uint32_t word, uint32_t& first, uint32_t& second) {
        // Above each byte, its sign eight times.
        first = place(ptx::permute_bytes(word, 0, 0x9180)), second = place(ptx::permute_bytes(word, 0, 0xb3a2));
    }

private:
    static DG_DEVICE uint32_t place(uint32_t halves) { return halves << 7 & in_both(0xbf80); }
};

}  // namespace deep_gemm
