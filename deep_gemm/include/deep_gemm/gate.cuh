// Gated activations: two elements of the product, a gate and an up, make one of D. Which rows of B they are products
// of, and in which order a tile has them.
#pragma once

#include <deep_gemm/activation.cuh>

namespace deep_gemm {

/// Rows of B: all gates and then all ups, or each gate followed by its up. Or in the order of tiles, in which they were
/// packed, while C and bias lie as the rows did. Or rows, C and bias in that order, 8 gates and their 8 ups in turn,
/// while scales of blocks of rows are those of halves (as weights of fused layers come).
enum class GateRows : int32_t { halves, interleaved, packed_halves, packed_interleaved, eights };

/// A tile has 8 gates side by side, and then the 8 ups that belong to them: one thread's fragment holds both of a pair.
inline constexpr int32_t kGateCols = 8;

struct Gated {
    GateKind kind = GateKind::none;
    GateRows rows = GateRows::halves;
    int32_t partial = 0;  // N / 2 modulo kGateCols: unless 0, so many of the last 8 gates (and ups) are B's

    constexpr bool operator==(const Gated&) const = default;
    constexpr bool any() const { return kind != GateKind::none; }
    /// Whether B's rows come in another order than that in which they lie.
    constexpr bool joins() const { return any() && rows <= GateRows::interleaved; }
    /// Whether neighbours of a tile come from both halves of B.
    constexpr bool joins_halves() const { return any() && rows == GateRows::halves; }
    /// Whether blocks of rows that share a scale are of gates, or of ups, as halves have them.
    constexpr bool blocks_in_halves() const { return joins_halves() || (any() && rows == GateRows::eights); }
    /// Whether B of `n` rows has the one that a column of the product is of, counted as tiles have them.
    constexpr bool has(int32_t col, int32_t n) const { return partial ? pair_of(col) < n / 2 : col < n; }
    /// Rows of B that one copy of so many brings: a map clips 8 gates and their 8 ups only by themselves.
    constexpr int32_t copied_at_once(int32_t rows) const { return partial ? 2 * kGateCols : rows; }
    /// Columns of D that so many of the product make: whole groups of gates and ups.
    constexpr int32_t columns(int32_t cols) const { return any() ? cols / 2 : cols; }
    /// The row of B, of `n`, that a column of the product is of, counted as tiles have them. (Scales of B lie as its
    /// rows do.)
    constexpr int32_t row_of_b(int32_t col, int32_t n) const { return joins() ? channel(col, n) : col; }
    /// Of halves' scales four are whole 16 bytes, at which the copy engine begins: where the first up's lies behind.
    constexpr int32_t first_up() const { return joins_halves() ? partial % 4 : 0; }
    /// Where a column's scale lies among a tile's, of halves in so many places.
    constexpr int32_t place_of_scale(int32_t col, int32_t places) const {
        return row_of_b(col, places) + is_up(col) * first_up();
    }
    /// Its place in C and bias.
    constexpr int32_t channel(int32_t col, int32_t n) const {
        if (!any() || rows == GateRows::eights) return col;
        if (rows == GateRows::halves || rows == GateRows::packed_halves) return in_halves(col, n);
        return 2 * pair_of(col) + is_up(col);
    }
    /// Its row where all gates come first.
    static constexpr int32_t in_halves(int32_t col, int32_t n) { return pair_of(col) + is_up(col) * (n / 2); }

private:
    static constexpr int32_t pair_of(int32_t col) { return col / (2 * kGateCols) * kGateCols + col % kGateCols; }
    static constexpr int32_t is_up(int32_t col) { return col / kGateCols % 2; }
};

}  // namespace deep_gemm
