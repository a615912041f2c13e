// Adds up the rows of a token's slots in FP32 and in the order of slots: equal bits each time.
#pragma once

#include <deep_gemm/element.cuh>
#include <deep_gemm/routing/config.cuh>

namespace deep_gemm {

/// Neighbours of a row.
template <Element kElement, bool kWide>
struct Neighbours {
    using Stored = StorageOf<kElement>;
    static constexpr int32_t kVectors = kCombinePiece * bits(kElement) / 128;

    /// Elements behind `left` are zeros, and stay as they are in memory. With kWide there are none or all.
    DG_DEVICE void load(const Stored* row, int32_t left) {
        if constexpr (kWide) {
#pragma unroll
            for (int32_t i = 0; i < kVectors; ++i)
                words.vectors[i] = left > 0 ? reinterpret_cast<const uint4*>(row)[i] : uint4{};
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCombinePiece; ++i) words.elements[i] = i < left ? row[i] : Stored{};
        }
    }
    DG_DEVICE void store(Stored* row, int32_t left) const {
        if constexpr (kWide) {
#pragma unroll
            for (int32_t i = 0; i < kVectors; ++i) reinterpret_cast<uint4*>(row)[i] = words.vectors[i];
        } else {
#pragma unroll
            for (int32_t i = 0; i < kCombinePiece; ++i)
                if (i < left) row[i] = words.elements[i];
        }
    }

    union {
        uint4 vectors[kVectors];
        Stored elements[kCombinePiece];
    } words;
};

/// What a slot adds: a row, from a thread's columns on. An address beside a flag, no null: a branch for each slot would
/// keep the loads of several from being there together.
template <Element kElement>
struct Addend {
    bool there;
    const StorageOf<kElement>* row;
    float weight = 1.0f;
};

/// The sums of a thread's columns, of which `left` exist, into `out`. `addend_of(slot, known)` says what a slot adds,
/// nothing where it is not `known`.
template <Element kInput, Element kOutput, bool kWeights, bool kWide, typename AddendOf>
DG_DEVICE void combine_slots(StorageOf<kOutput>* out, int32_t left, int32_t choices, const AddendOf& addend_of) {
    float sums[kCombinePiece] = {};
#pragma unroll 1
    for (int32_t slot = 0; slot < choices; slot += kCombineAhead) {
        Neighbours<kInput, kWide> rows[kCombineAhead];
        Addend<kInput> addends[kCombineAhead];
#pragma unroll
        for (int32_t i = 0; i < kCombineAhead; ++i) {
            addends[i] = addend_of(slot + i, slot + i < choices);
            rows[i].load(addends[i].row, addends[i].there ? left : 0);
        }
#pragma unroll
        for (int32_t i = 0; i < kCombineAhead; ++i) {
            if (!addends[i].there) continue;
#pragma unroll
            for (int32_t j = 0; j < kCombinePiece; ++j) {
                const float value = to_register<kInput>(rows[i].words.elements[j]);
                sums[j] = kWeights ? __fmaf_rn(addends[i].weight, value, sums[j]) : __fadd_rn(sums[j], value);
            }
        }
    }
    Neighbours<kOutput, kWide> result;
#pragma unroll
    for (int32_t j = 0; j < kCombinePiece; ++j) from_register<kOutput>(result.words.elements[j], sums[j]);
    result.store(out, left);
}

}  // namespace deep_gemm
