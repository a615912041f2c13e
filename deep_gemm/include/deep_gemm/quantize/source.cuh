// Eight neighbours of a row, as they are read and as they are quantised.
#pragma once

#include <deep_gemm/activation.cuh>
#include <deep_gemm/element.cuh>
#include <deep_gemm/quantize/config.cuh>

namespace deep_gemm {

/// The words that eight elements are, gates and ups behind each other.
template <Constant<QuantizeConfig> c>
class Source {
public:
    /// Where the `column`th element of the row that begins at `row`, in elements, lies.
    static DG_DEVICE const uint8_t* place(const QuantizeParams& params, int64_t row, int32_t column) {
        return params.x + (row + (c.interleaved ? 2 * int64_t{column} : column)) * kBytes;
    }

    /// From there on; zeros behind `left` elements.
    DG_DEVICE void load(const QuantizeParams& params, const uint8_t* place, int32_t left) {
        load_part(0, place, c.interleaved ? 2 * left : left);
        if constexpr (c.interleaved)
            load_part(1, place + kPieceK * kBytes, 2 * left - kPieceK);
        else if constexpr (c.gate != GateKind::none)
            load_part(1, place + int64_t{params.k} * kBytes, left);
    }

    /// What is quantised; zeros behind k, of which an activation may make something else.
    DG_DEVICE void values(const QuantizeParams& params, int32_t left, float row_scale,
                          float (&results)[kPieceK]) const {
#pragma unroll
        for (int32_t i = 0; i < kPieceK; ++i) {
            if constexpr (c.gate == GateKind::none)
                results[i] = element(i);
            else if constexpr (c.interleaved)
                results[i] = gated<c.gate, c.gate_numbers>(element(2 * i), element(2 * i + 1), params.gate);
            else
                results[i] = gated<c.gate, c.gate_numbers>(element(i), element(i + kPieceK), params.gate);
            if constexpr (c.row_scale) results[i] = __fmul_rn(results[i], row_scale);
            if constexpr (c.gate != GateKind::none || c.row_scale) results[i] = i < left ? results[i] : 0.0f;
        }
    }

    /// The largest magnitude of `values`, which are what values() gave: of 16 bits two are compared at once.
    DG_DEVICE float largest(const float (&values)[kPieceK]) const {
        if constexpr (c.gate == GateKind::none && !c.row_scale && c.input != Element::fp32) {
            uint32_t both = words_[0];
#pragma unroll
            for (int32_t i = 1; i < kWords; ++i) both = ptx::larger_magnitudes<c.input>(both, words_[i]);
            const float2 two = Pack<c.input>::unpack(both);
            return ptx::max_or_nan(fabsf(two.x), fabsf(two.y));
        } else {
            float largest = fabsf(values[0]);
#pragma unroll
            for (int32_t i = 1; i < kPieceK; ++i) largest = ptx::max_or_nan(largest, fabsf(values[i]));
            return largest;
        }
    }

    /// Something of each load.
    DG_DEVICE uint32_t loaded() const {
        uint32_t some = 0;
#pragma unroll
        for (int32_t i = 0; i < kWords * c.gates(); i += 4) some |= words_[i];
        return some;
    }
    /// Zero, of which ptxas does not know it: no element is known before it is.
    DG_DEVICE void add(uint32_t zero) {
        zero_ = zero;
        if constexpr (c.input != Element::bf16) {
#pragma unroll
            for (uint32_t& word : words_) word |= zero;
        }
    }

private:
    static constexpr int32_t kBytes = bits(c.input) / 8, kWords = kPieceK * kBytes / 4;

    DG_DEVICE float element(int32_t index) const {
        const uint32_t word = words_[index * kBytes / 4];
        if constexpr (c.input == Element::fp32) {
            return __uint_as_float(word);
        } else if constexpr (c.input == Element::bf16 && c.gate != GateKind::none) {
            constexpr uint32_t kBehindZeros = 0x1044, kUpper = 0xffff0000u;
            return __uint_as_float(index % 2 == 0 ? ptx::permute_bytes(word, zero_, kBehindZeros)
                                                  : (word & kUpper) | zero_);
        } else {
            const float2 both = Pack<c.input>::unpack(word);
            return index % 2 == 0 ? both.x : both.y;
        }
    }

    DG_DEVICE void load_part(int32_t part, const uint8_t* source, int32_t left) {
        uint32_t* const words = words_ + part * kWords;
        if constexpr (c.wide) {
#pragma unroll
            for (int32_t i = 0; i < kWords; i += 4) {
                const uint4 four = left > 0 ? *reinterpret_cast<const uint4*>(source + i * 4) : uint4{};
                words[i] = four.x, words[i + 1] = four.y, words[i + 2] = four.z, words[i + 3] = four.w;
            }
        } else {
#pragma unroll
            for (int32_t i = 0; i < kPieceK; ++i) {
                uint32_t one = 0;
                if constexpr (kBytes == 4) {
                    if (i < left) one = reinterpret_cast<const uint32_t*>(source)[i];
                    words[i] = one;
                } else {
                    if (i < left) one = reinterpret_cast<const uint16_t*>(source)[i];
                    words[i / 2] = i % 2 == 0 ? one : words[i / 2] | one << 16;
                }
            }
        }
    }

    uint32_t words_[kWords * c.gates()], zero_ = 0;
};

/// Nothing is computed before all loads were asked for: ptxas would do an activation first, and ask for the next row's
/// words then. blockIdx.y is 0, which it does not know.
template <Constant<QuantizeConfig> c, int32_t kCount>
DG_DEVICE void wait_for_all(Source<c> (&sources)[kCount]) {
    if constexpr (c.gate != GateKind::none && kCount > 1) {
        uint32_t loaded = 0;
#pragma unroll
        for (const Source<c>& source : sources) loaded |= source.loaded();
#pragma unroll
        for (Source<c>& source : sources) source.add(loaded & blockIdx.y);
    }
}

}  // namespace deep_gemm
