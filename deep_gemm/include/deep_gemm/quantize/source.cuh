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
    /// Of the row that begins at `row`, in elements, from `column` on; zeros behind k and where `exists` is false.
    DG_DEVICE void load(const QuantizeParams& params, int64_t row, int32_t column, bool exists) {
        const int32_t left = exists ? params.k - column : 0;
        if constexpr (c.gate == GateKind::none) {
            load_part(params, 0, row + column, left);
        } else if constexpr (c.interleaved) {
            load_part(params, 0, row + 2 * int64_t{column}, 2 * left);
            load_part(params, 1, row + 2 * int64_t{column} + kPieceK, 2 * left - kPieceK);
        } else {
            load_part(params, 0, row + column, left);
            load_part(params, 1, row + params.k + column, left);
        }
    }

    /// What is quantised; zeros behind k, of which an activation may make something else.
    DG_DEVICE void values(const QuantizeParams& params, int32_t column, float row_scale,
                          float (&results)[kPieceK]) const {
#pragma unroll
        for (int32_t i = 0; i < kPieceK; ++i) {
            if constexpr (c.gate == GateKind::none)
                results[i] = element(i);
            else if constexpr (c.interleaved)
                results[i] = gated<c.gate>(element(2 * i), element(2 * i + 1), params.gate);
            else
                results[i] = gated<c.gate>(element(i), element(i + kPieceK), params.gate);
            if constexpr (c.row_scale) results[i] = __fmul_rn(results[i], row_scale);
            if constexpr (c.gate != GateKind::none || c.row_scale)
                results[i] = column + i < params.k ? results[i] : 0.0f;
        }
    }

    /// Something of each load.
    DG_DEVICE uint32_t loaded() const {
        uint32_t some = 0;
#pragma unroll
        for (int32_t i = 0; i < kWords * c.gates(); i += 4) some |= words_[i];
        return some;
    }
    DG_DEVICE void add_bits(uint32_t bits) {
#pragma unroll
        for (uint32_t& word : words_) word |= bits;
    }

private:
    static constexpr int32_t kBytes = bits(c.input) / 8, kWords = kPieceK * kBytes / 4;

    DG_DEVICE float element(int32_t index) const {
        const uint32_t word = words_[index * kBytes / 4];
        if constexpr (c.input == Element::fp32)
            return __uint_as_float(word);
        else {
            const float2 both = Pack<c.input>::unpack(word);
            return index % 2 == 0 ? both.x : both.y;
        }
    }

    DG_DEVICE void load_part(const QuantizeParams& params, int32_t part, int64_t first, int32_t left) {
        uint32_t* const words = words_ + part * kWords;
        const uint8_t* const source = params.x + first * kBytes;
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

    uint32_t words_[kWords * c.gates()];
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
        for (Source<c>& source : sources) source.add_bits(loaded & blockIdx.y);
    }
}

}  // namespace deep_gemm
