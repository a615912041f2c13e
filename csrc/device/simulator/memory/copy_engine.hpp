// What the files of the copy engine share.
#pragma once

#include <functional>

#include "../core/execute.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

// Instruction::flags of a bulk copy.
enum : uint32_t {
    kTensor = 1,
    kToShared = 2,
    kFromShared = 4,
    kMulticast = 8,
    kReduce = 16,
    kWithBarrier = 32,
    kOwnDestination = 64,
    kPairBarrier = 128,   // .cta_group::2: the mbarrier may be in the other block of the pair
    kFourRows = 1u << 24  // .tile::gather4 and .tile::scatter4: four rows, each with a coordinate of its own
};
constexpr unsigned kRankOf = 8, kTypeOf = 12, kOperationOf = 20;

/// Where the mbarrier operand of a copy leads; false (after a report) if nowhere.
bool barrier_operand(Warp& w, const Operand& operand, int64_t displacement, unsigned lane, Place& place);

/// Let a copy write `bytes` at `destination` of `cta` and complete `counted` bytes on the mbarrier at `barrier_offset`
/// of `barrier_cta`.
void defer_arrival(Warp& w, const Instruction& in, unsigned lane, Cta& cta, uint32_t destination, uint32_t bytes,
                   uint32_t counted, Cta& barrier_cta, uint32_t barrier_offset, const char* what,
                   std::function<void(Cta&, uint32_t)> write, uint8_t swizzle = kNoSwizzleKnown);

/// A copy out of shared memory: first it reads, which frees the buffer, then it writes.
void defer_departure(Warp& w, const Instruction& in, unsigned lane, uint32_t source, uint32_t bytes, const char* what,
                     std::function<std::vector<char>(Cta&)> read, std::function<void(std::vector<char>&)> write);

/// Report shared memory that a copy to global memory reads and nobody wrote.
void check_initialised(Warp* warp, const Instruction* in, Cta& cta, uint32_t offset, uint32_t bytes);

Step tensor_copy(Warp& w, const Instruction& in, uint32_t lanes);  // tensor_copy.cpp
Step tensor_prefetch(Warp& w, const Instruction& in, uint32_t lanes);
Step linear_copy(Warp& w, const Instruction& in, uint32_t lanes);  // bulk.cpp
Step commit_group(Warp& w, const Instruction& in, uint32_t lanes);
Step wait_group(Warp& w, const Instruction& in, uint32_t lanes);
Step store_async(Warp& w, const Instruction& in, uint32_t lanes);
/// The mbarrier that a copy completes on, for barrier_operand.
void decode_barrier_operand(Decoder& decoder, size_t operand);
void decode_cluster_control(Decoder& decoder);  // cluster_control.cpp
void decode_small_copy(Decoder& decoder);       // small_copy.cpp: what stands behind cp.async, except .bulk
constexpr uint32_t kReadOnly = 1;               // flag of wait_group: only the reads

}  // namespace deep_gemm::simulator
