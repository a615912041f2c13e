// Config and argument of the index logits' kernels, and the plans that host and device share.
//
// logits[i, j] = sum over heads h of relu(q[i, h] . k[j]) * w[i, h], times the key's scale. Keys are the rows of a
// product, heads of several query rows its columns: a thread adds up its columns in registers.
#pragma once

#include <deep_gemm/format.cuh>
#include <deep_gemm/params.cuh>

namespace deep_gemm {

inline constexpr int32_t kLogitsTile = 64;            // keys of a tile, the unit in which work is dealt
inline constexpr int32_t kLogitsAtomTiles = 2;        // that an atom costs beside its tiles, when work is dealt
inline constexpr int32_t kLogitsAtomsOfWarp = 64;     // up to which each warp deals for itself: sums fit 32 bits
inline constexpr int32_t kLogitsCleanColumns = 2048;  // that a warp fills at once, where logits are cleaned
inline constexpr int32_t kMxGroup = 32;               // of D, that shares an exponent

struct LogitsConfig {
    bool paged = false;                  // keys lie in blocks that a table names
    bool exponents = false;              // queries and keys have an exponent for each 32 of D, and no other scales
    Element element = Element::e4m3;     // of queries and keys
    Element multiplied = Element::e4m3;  // what the tensor cores multiply in their place
    Element weights = Element::fp32, logits = Element::fp32;
    int32_t heads = 0, padded_heads = 0, d = 0;
    int32_t rows = 0;                  // query rows of a product: its columns are all heads of these
    int32_t products = 1;              // that a math group makes of each tile of keys
    int32_t math_groups = 1;           // warpgroups of Hopper's kernel
    bool shares_keys = false;          // math groups have query rows of their own; else they take tiles in turn
    int32_t block_keys = kLogitsTile;  // keys of a block, where they are paged
    int32_t stages = 0, query_stages = 0;

    constexpr bool operator==(const LogitsConfig&) const = default;

    constexpr int32_t columns() const { return rows * padded_heads; }
    constexpr int32_t group_rows() const { return rows * products; }  // query rows of a math group
    constexpr int32_t row_groups() const { return shares_keys ? math_groups : 1; }
    constexpr int32_t cta_rows() const { return group_rows() * row_groups(); }  // that read the same keys
    constexpr int32_t key_bytes() const { return bytes_of(element, d); }
    /// Codes are multiplied as they are, and the instruction scales them.
    constexpr bool exponents_in_instruction() const { return exponents && multiplied == element; }
};

/// Of query rows and keys, what a kernel reads. Rows that read the same keys make an atom: so many rows that follow
/// each other or, where keys are paged, those of one request.
struct LogitsParams {
    TensorMap queries, keys, scales;  // where a copy engine brings them

    const uint8_t* query_data;
    const uint8_t* key_data;
    const float* key_scales;  // not where keys are paged: there scales follow the codes of their block
    const int32_t* query_exponents;
    const int32_t* key_exponents;
    const void* weights;
    void* logits;
    int64_t query_stride, query_head_stride;  // bytes between rows, and between heads
    int64_t key_stride;                       // bytes between keys or, where they are paged, blocks
    int64_t weight_stride;                    // elements
    int64_t logits_stride;                    // elements

    const int32_t* first_keys;  // of each row, where keys are not paged
    const int32_t* end_keys;    // of each row, [rows], or of each request, [requests]
    const int32_t* block_table;
    int64_t block_table_stride;
    int32_t table_blocks;  // of a line of the table
    int32_t num_blocks;    // of the cache

    int32_t rows, atoms, keys_in_all;
    int32_t rows_per_request, atoms_per_request;
    int32_t row_lengths;  // whether end_keys has a length for each row of a request
    int32_t columns;      // of logits
    int32_t compressed;   // column 0 is a row's first key, not the first of all
    int32_t cleaned;      // other columns become -inf
};

/// Keys [first, end).
struct KeyRange {
    int32_t first = 0, end = 0;
    constexpr bool empty() const { return first >= end; }
    constexpr int32_t tiles() const { return empty() ? 0 : ceil_div(end - first, kLogitsTile); }
};

/// Where the logits of a query row go: the address that key 0's would have, and the keys that it sees.
struct LogitsRow {
    uint64_t address;
    KeyRange keys;
};

/// What rows of an atom that see keys cost, in tiles.
constexpr int32_t cost(const KeyRange& keys) { return keys.empty() ? 0 : keys.tiles() + kLogitsAtomTiles; }

/// A run of so much cost: from a place in an atom on, which sees these keys, and over the atoms behind it.
struct LogitsShare {
    int32_t atom = 0, place = 0;
    int64_t left = 0;
    KeyRange keys;
};

/// What is left in shared memory when tiles are dealt: sums of warps, and the share.
struct ShareSmem {
    int64_t warp_sums[32];
    LogitsShare share;
};

constexpr int32_t padded_logit_heads(int32_t heads) { return align_up(heads, heads > 64 ? 16 : 8); }

}  // namespace deep_gemm
