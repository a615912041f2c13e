// Words of scales in tensor memory (TensorPlan): which set is whose, and which word and bytes a step is scaled by.
#pragma once

#include <deep_gemm/arch/sm100_smem.cuh>
#include <deep_gemm/ptx/barrier.cuh>
#include <deep_gemm/ptx/tcgen05.cuh>
#include <deep_gemm/tile/ring.cuh>

namespace deep_gemm::sm100 {

/// Of one operand, where K blocks have a word each or share one. `kExtent` rows, of which blocks of 128 are copied.
template <Constant<GemmConfig> c, Constant<Scaling> kScaling, int32_t kExtent, bool kInBlocks,
          bool = has_several_words(c)>
class WordSets {
public:
    DG_DEVICE explicit WordSets(uint32_t address) : first_(address) {}

    /// Take the next set, which is copied from shared memory.
    DG_DEVICE void advance() { set_ = set_ + 1 == c.stages ? 0 : set_ + 1; }
    DG_DEVICE void copy(uint32_t words) const {
#pragma unroll
        for (int32_t block = 0; block < scale_blocks(kExtent); ++block)
            ptx::copy_to_tensor_memory<mma_ctas(c)>(address(0) + block * kScaleBlockColumns,
                                                    ptx::tensor_descriptor_of_scales(words + block * kScaleBlockBytes));
    }

    DG_DEVICE uint32_t address(int32_t) const { return first_ + set_ * scale_blocks(kExtent) * kScaleBlockColumns; }

    /// The byte that a step of a K block, counted from where words are, is scaled by.
    static DG_DEVICE uint32_t byte(int32_t block, int32_t step) {
        constexpr int32_t kBlocksPerWord = blocks_per_word(c, kScaling);
        return kBlocksPerWord == 1 ? step : block % kBlocksPerWord;
    }

private:
    uint32_t first_;
    int32_t set_ = c.stages - 1;
};

/// The same where each K block has several words: a set is all of them, and a step takes several bytes of one.
template <Constant<GemmConfig> c, Constant<Scaling> kScaling, int32_t kExtent, bool kInBlocks>
class WordSets<c, kScaling, kExtent, kInBlocks, true> {
public:
    DG_DEVICE explicit WordSets(uint32_t address) : first_(address) {}

    DG_DEVICE void advance() { set_ = set_ + 1 == kSets ? 0 : set_ + 1; }
    DG_DEVICE void copy(uint32_t words) const {
#pragma unroll
        for (int32_t word = 0; word < kWords; ++word)
#pragma unroll
            for (int32_t block = 0; block < kBlocks; ++block)
                ptx::copy_to_tensor_memory<mma_ctas(c)>(
                    set() + (word * kBlocks + block) * kScaleBlockColumns,
                    ptx::tensor_descriptor_of_scales(words + word_offset(kInBlocks, kBlocks, kWords, block, word)));
    }

    DG_DEVICE uint32_t address(int32_t step) const {
        return set() + step / kStepsPerWord * kBlocks * kScaleBlockColumns;
    }

    /// The first of the bytes.
    static DG_DEVICE uint32_t byte(int32_t, int32_t step) {
        constexpr int32_t kBytes = kScalesPerWord / kStepsPerWord;
        return step % kStepsPerWord * kBytes;
    }

private:
    static constexpr int32_t kSets = Smem<c>::kTensor.sets, kWords = block_words(c), kBlocks = scale_blocks(kExtent),
                             kStepsPerWord = word_k(kScaling) / step_k(c.a, c.b);
    static_assert(words_per_block(kScaling, c.tile.k) == kWords, "both operands have words for as much of K");

    DG_DEVICE uint32_t set() const { return first_ + set_ * kWords * kBlocks * kScaleBlockColumns; }

    uint32_t first_;
    int32_t set_ = kSets - 1;
};

/// When the next set may be written: where there are fewer than stages, once the commit of the K block that read it
/// last has let go its stage.
template <Constant<GemmConfig> c, bool = (Smem<c>::kTensor.sets < c.stages)>
class SetsInUse {
public:
    DG_DEVICE void wait(const Smem<c>&) {}
};
template <Constant<GemmConfig> c>
class SetsInUse<c, true> {
public:
    DG_DEVICE void wait(const Smem<c>& smem) {
        ptx::barrier_wait(smem.empty(reader_.stage), reader_.phase);
        reader_.advance();
    }

private:
    // So many K blocks back. Before the first one: the phase that a new barrier passes.
    Ring<c.stages> reader_{.stage = c.stages - Smem<c>::kTensor.sets, .phase = 1};
};

}  // namespace deep_gemm::sm100
