// An entry of the table of groups in shared memory.
#pragma once

#include <deep_gemm/tile/group_plan.cuh>

namespace deep_gemm {

/// A group that has rows to write, or a run of rows in a contiguous layout. The entry after the last one has group =
/// -1.
struct GroupEntry {
    int32_t block_end;           // blocks of tile height in this group and all before it
    int32_t row_begin, row_end;  // its real rows; blocks past row_end are padding to be zeroed
    int32_t group;

    // Where they lie, for who writes one of them (offsetof is the host's).
    static constexpr uint32_t kRowBegin = 4, kRowEnd = 8, kGroup = 12;
};
static_assert(sizeof(GroupEntry) == kGroupEntryBytes);

}  // namespace deep_gemm
