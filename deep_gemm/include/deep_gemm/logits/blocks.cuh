// Where keys lie: one after the other, or in blocks that a table names.
#pragma once

#include <deep_gemm/logits/share.cuh>

namespace deep_gemm {

/// A block of keys, and a key in it. Keys that do not lie in blocks are in the first.
struct KeyPlace {
    int32_t block, in_block;
};

/// Of a segment. Its methods are called by all lanes of a warp.
template <Constant<LogitsConfig> c, bool = c.paged>
class KeyBlocks {
public:
    DG_DEVICE KeyBlocks(const LogitsSegment&, const LogitsParams&) {}

    DG_DEVICE KeyPlace place(int32_t key, int32_t, const LogitsParams&) const { return {0, key}; }
    DG_DEVICE bool has_scale(const KeyPlace&, int32_t key, const LogitsParams& p) const { return key < p.keys_in_all; }
    /// Of the `at`-th key behind a place.
    DG_DEVICE const float* scale(const KeyPlace& place, int32_t at, bool given, const LogitsParams& p) const {
        return p.key_scales + (given ? place.in_block + at : 0);
    }
};

template <Constant<LogitsConfig> c>
class KeyBlocks<c, true> {
public:
    DG_DEVICE KeyBlocks(const LogitsSegment& segment, const LogitsParams& p)
        : line_(p.block_table + request_of_atom(segment.atom, p) * p.block_table_stride), end_(segment.end_key) {}

    /// Behind the last key that is seen the table may hold anything: there, and where it names no block of the cache,
    /// a block past all others stands, of which the copy engine makes zeros.
    DG_DEVICE KeyPlace place(int32_t key, int32_t lane, const LogitsParams& p) {
        const int32_t entry = key / c.block_keys;
        if (entry < first_ || entry >= first_ + 32) {
            first_ = entry;
            const int32_t mine = entry + lane;
            entry_ = mine * c.block_keys < end_ ? line_[mine] : -1;
            if (static_cast<uint32_t>(entry_) >= static_cast<uint32_t>(p.num_blocks)) entry_ = p.num_blocks;
        }
        return {__shfl_sync(0xffffffff, entry_, entry - first_), key % c.block_keys};
    }
    DG_DEVICE bool has_scale(const KeyPlace& place, int32_t, const LogitsParams& p) const {
        return place.block < p.num_blocks;
    }
    DG_DEVICE const float* scale(const KeyPlace& place, int32_t at, bool given, const LogitsParams& p) const {
        const int64_t block = given ? place.block : 0;
        return reinterpret_cast<const float*>(p.key_data + block * p.key_stride + c.block_keys * c.key_bytes()) +
               place.in_block + at;
    }

private:
    const int32_t* line_;
    int32_t end_, first_ = -32, entry_ = 0;  // a lane's entry of 32 that follow each other
};

}  // namespace deep_gemm
