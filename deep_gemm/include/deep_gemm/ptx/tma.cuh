// The tensor memory accelerator: boxes of a tensor between global and shared memory.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// What the L2 should do with lines that a copy reads; the encodings are those that createpolicy gives for a whole
/// access.
enum class CacheHint : uint64_t {
    normal = 0x1000000000000000,
    evict_first = 0x12f0000000000000,
    evict_last = 0x14f0000000000000,
};

/// prefetch.tensormap: fetch a descriptor before its first use.
DG_DEVICE void prefetch_tensor_map(const void* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

/// cp.async.bulk.tensor.3d: one box to this CTA's shared memory; its bytes count on `barrier`.
DG_DEVICE void load_box(uint32_t destination, const void* map, uint32_t barrier, int x, int y, int z, CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(static_cast<uint64_t>(hint))
        : "memory");
}

/// load_box where the barrier may be the other CTA's of a pair.
DG_DEVICE void load_box_of_pair(uint32_t destination, const void* map, uint32_t barrier, int x, int y, int z,
                                CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(static_cast<uint64_t>(hint))
        : "memory");
}

/// load_box into every CTA of `cta_mask`, at the same offset, each counting on its own barrier at the same offset.
DG_DEVICE void load_box_multicast(uint32_t destination, const void* map, uint32_t barrier, int x, int y, int z,
                                  uint16_t cta_mask, CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(cta_mask), "l"(static_cast<uint64_t>(hint))
        : "memory");
}

/// cp.async.bulk.tensor.5d at (x, pair, 0, y, z): load_box of a map that has two dimensions more.
DG_DEVICE void load_box_5d(uint32_t destination, const void* map, uint32_t barrier, int x, int pair, int y, int z,
                           CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %7, %8, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(static_cast<uint64_t>(hint)), "r"(pair), "r"(0)
        : "memory");
}

/// The same as load_box_of_pair.
DG_DEVICE void load_box_5d_of_pair(uint32_t destination, const void* map, uint32_t barrier, int x, int pair, int y,
                                   int z, CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint"
        " [%0], [%1, {%3, %7, %8, %4, %5}], [%2], %6;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(static_cast<uint64_t>(hint)), "r"(pair), "r"(0)
        : "memory");
}

/// The same as load_box_multicast.
DG_DEVICE void load_box_5d_multicast(uint32_t destination, const void* map, uint32_t barrier, int x, int pair, int y,
                                     int z, uint16_t cta_mask, CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
        " [%0], [%1, {%3, %8, %9, %4, %5}], [%2], %6, %7;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(cta_mask), "l"(static_cast<uint64_t>(hint)), "r"(pair),
        "r"(0)
        : "memory");
}

/// load_box and load_box_5d where there are no other CTAs to name: for sm_120 ptxas makes of shared::cluster a question
/// whose memory it is, and a call where it is another's.
DG_DEVICE void load_box_of_cta(uint32_t destination, const void* map, uint32_t barrier, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

DG_DEVICE void load_box_5d_of_cta(uint32_t destination, const void* map, uint32_t barrier, int x, int pair, int y,
                                  int z) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cta.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %6, %7, %4, %5}], [%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(pair), "r"(0)
        : "memory");
}

/// cp.async.bulk.tensor.3d store: one box from shared memory, clipped at the tensor's edges.
DG_DEVICE void store_box(const void* map, uint32_t source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(source), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/// cp.reduce.async.bulk.tensor.3d add: the same box, added to what the tensor holds, in the L2.
DG_DEVICE void add_box(const void* map, uint32_t source, int x, int y, int z) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(source), "r"(x), "r"(y), "r"(z)
        : "memory");
}

/// cp.async.bulk.prefetch.tensor.3d: the L2 fetches a box.
DG_DEVICE void prefetch_box(const void* map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/// cp.async.bulk.commit_group: the stores issued so far by this thread form a group.
DG_DEVICE void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// cp.async.bulk.wait_group.read: all groups but the last kPending have read their shared memory.
template <int kPending>
DG_DEVICE void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// cp.async.bulk.wait_group: and their writes are visible.
template <int kPending>
DG_DEVICE void wait_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace deep_gemm::ptx
