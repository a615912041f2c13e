// A warp's 32 keys, converted once, by all queries of an atom, which stream by from shared memory.
#pragma once

#include <deep_gemm/load/sm80/logits.cuh>
#include <deep_gemm/mma/sm80/instruction.cuh>

namespace deep_gemm::sm80 {

/// Heads of a query row in shared memory.
template <Constant<LogitsConfig> c>
struct QueryHeads {
    const uint8_t* codes;
    const float* weights;
    const uint32_t* exponents;  // where the instruction takes them

    DG_DEVICE QueryHeads(const uint8_t* smem, int32_t row)
        : codes(smem + row * c.padded_heads * query_head_bytes(c)),
          weights(reinterpret_cast<const float*>(smem + plan_logits_smem(c).weights) + row * c.padded_heads),
          exponents(reinterpret_cast<const uint32_t*>(smem + plan_logits_smem(c).exponents) + row * c.padded_heads) {}
};

/// What a lane has of so many times eight heads, from number `eight` on.
template <Constant<LogitsConfig> c, int32_t kCount>
struct HeadCodes {
    using Lane = Quarter<c>;
    uint32_t words[kCount][Lane::kConverted];

    DG_DEVICE void load(const QueryHeads<c>& heads, int32_t eight, int32_t lane) {
#pragma unroll
        for (int32_t i = 0; i < kCount; ++i)
            load_head(words[i], heads.codes + ((eight + i) * 8 + lane / 4) * query_head_bytes(c), lane % 4);
    }

private:
    static DG_DEVICE void load_head(uint32_t (&to)[Lane::kConverted], const uint8_t* head, int32_t part) {
#pragma unroll
        for (int32_t unit = 0; unit < Lane::kUnits; ++unit) {
            const uint8_t* const at = head + Lane::unit_offset(unit, part);
            if constexpr (Lane::kUnitBytes == 16) {
                const uint4 four = *reinterpret_cast<const uint4*>(at);
                to[4 * unit] = four.x, to[4 * unit + 1] = four.y;
                to[4 * unit + 2] = four.z, to[4 * unit + 3] = four.w;
            } else {
                const uint2 two = *reinterpret_cast<const uint2*>(at);
                to[0] = two.x, to[1] = two.y;
            }
        }
    }
};

/// And all else that a product takes of them.
template <Constant<LogitsConfig> c, int32_t kCount>
struct HeadWords : HeadCodes<c, kCount> {};

/// A warp's 32 keys as they are multiplied: a lane has its part of four of them, 8 apart.
template <Constant<LogitsConfig> c>
class KeyWords {
public:
    using Lane = Quarter<c>;
    template <int32_t kCount>
    using Heads = HeadWords<c, kCount>;

    /// Of the lane's own key: its scale, or NaN where a code is that tensor cores do not know as such.
    DG_DEVICE float convert(const LoadedKeys<c>& loaded, int32_t own_key, int32_t lane) {
        uint32_t nan = 0;
#pragma unroll
        for (int32_t i = 0; i < 4; ++i)
            nan |= static_cast<uint32_t>(Lane::Conversion::run(loaded.codes[i], words_[i],
                                                               Lane::exponent(loaded.exponents[i], lane % 4)))
                   << i;
        float scale = loaded.scale;
        if constexpr (c.multiplied != c.element && c.element == Element::e4m3) {
            nan |= __shfl_xor_sync(0xffffffff, nan, 1), nan |= __shfl_xor_sync(0xffffffff, nan, 2);
            if (nan >> own_key / 8 & 1) scale = __int_as_float(0x7fffffff);
        }
        if constexpr (c.multiplied == Element::fp16) scale *= Convert<Element::e4m3, Element::fp16>::kUndone;
        return scale;
    }

    /// A step's product of 16 of the keys by eight heads.
    template <int32_t kCount>
    DG_DEVICE void multiply(float (&products)[4], int32_t half, const Heads<kCount>& heads, int32_t i,
                            int32_t step) const {
        const uint32_t cols[2] = {heads.words[i][2 * step], heads.words[i][2 * step + 1]};
        const uint32_t rows[4] = {words_[2 * half][2 * step], words_[2 * half + 1][2 * step],
                                  words_[2 * half][2 * step + 1], words_[2 * half + 1][2 * step + 1]};
        sm80::multiply<c.multiplied>(products, rows, cols);
    }

private:
    uint32_t words_[4][Lane::kConverted];
};

template <Constant<LogitsConfig> c>
class WarpKeys {
public:
    using Lane = Quarter<c>;
    using Quads = QuadSums<2>;  // of two times 16 keys, which stand where it has query rows

    /// Which of the 32 keys a lane finishes.
    static DG_DEVICE int32_t own_key(int32_t lane) { return Quads::first_row(lane) * 16 + Quads::key(lane); }

    DG_DEVICE void convert(const LoadedKeys<c>& loaded, int32_t lane) {
        scale_ = keys_.convert(loaded, own_key(lane), lane);
    }

    /// The logit of the lane's own key for a query row.
    DG_DEVICE float score(const QueryHeads<c>& heads, int32_t lane) const {
        constexpr int32_t kEights = c.padded_heads / 8;  // of heads
        float sums[2][2] = {};
#pragma unroll 1
        for (int32_t eight = 0; eight + 1 < kEights; eight += 2) add_eights<2>(sums, heads, eight, lane);
        if constexpr (kEights % 2 != 0) add_eights<1>(sums, heads, kEights - 1, lane);
        float kept[1];
        Quads::reduce(sums, kept, lane);
        return kept[0] * scale_;
    }

private:
    static constexpr int32_t kStepWords = 2;  // of a lane, that a product takes
    static constexpr int32_t kSteps = Lane::kConverted / kStepWords;

    /// Products of so many times eight heads, side by side: none waits for another.
    template <int32_t kCount>
    DG_DEVICE void add_eights(float (&sums)[2][2], const QueryHeads<c>& heads, int32_t eight, int32_t lane) const {
        float products[kCount][2][4] = {};
        typename KeyWords<c>::template Heads<kCount> words;
        words.load(heads, eight, lane);
#pragma unroll
        for (int32_t step = 0; step < kSteps; ++step)
#pragma unroll
            for (int32_t i = 0; i < kCount; ++i)
#pragma unroll
                for (int32_t half = 0; half < 2; ++half)
                    keys_.template multiply<kCount>(products[i][half], half, words, i, step);
#pragma unroll
        for (int32_t i = 0; i < kCount; ++i) {
            const float2 weight = reinterpret_cast<const float2*>(heads.weights)[(eight + i) * 4 + lane % 4];
#pragma unroll
            for (int32_t half = 0; half < 2; ++half)
#pragma unroll
                for (int32_t key = 0; key < 2; ++key) {
                    float& sum = sums[half][key];
                    sum = __fmaf_rn(ptx::relu(products[i][half][2 * key]), weight.x, sum);
                    sum = __fmaf_rn(ptx::relu(products[i][half][2 * key + 1]), weight.y, sum);
                }
        }
    }

    KeyWords<c> keys_;
    float scale_;
};

/// All tiles of a segment, 32 keys at a time; warps take them in turn.
template <Constant<LogitsConfig> c>
DG_DEVICE void score_segment(const uint8_t* smem, const LogitsSegment& segment, int32_t warp, int32_t lane,
                             const LogitsParams& p) {
    constexpr LogitsSmemPlan kPlan = plan_logits_smem(c);
    const auto* const ranges = reinterpret_cast<const KeyRange*>(smem + kPlan.ranges);
    const AtomRows rows = rows_of_atom<c>(segment.atom, p);
    const int32_t own_key = WarpKeys<c>::own_key(lane), pieces = segment.tiles * (kLogitsTile / kLogitsKeys);
    KeyBlocks<c> blocks(segment, p);
    LoadedKeys<c> loaded;
    WarpKeys<c> keys;
    if (warp < pieces) loaded.load(segment.first_key + warp * kLogitsKeys, blocks, lane, own_key, p);
#pragma unroll 1
    for (int32_t piece = warp; piece < pieces; piece += logits_warps(c)) {
        const int32_t first_key = segment.first_key + piece * kLogitsKeys, key = first_key + own_key;
        keys.convert(loaded, lane);
        if (piece + logits_warps(c) < pieces)
            loaded.load(first_key + logits_warps(c) * kLogitsKeys, blocks, lane, own_key, p);
#pragma unroll 1
        for (int32_t row = 0; row < rows.count; ++row) {
            const KeyRange seen = ranges[row];
            const float logit = keys.score(QueryHeads<c>(smem, row), lane);
            if (key >= seen.first && key < seen.end)
                store_logit<c>(rows.first + row, p.compressed ? key - seen.first : key, logit, p);
        }
    }
}

}  // namespace deep_gemm::sm80
