// What a step of the epilogue may ask.
#pragma once

#include <deep_gemm/params.cuh>
#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm {

/// One thread's values at the end of a tile, or of a part of it.
///
/// A place says where they lie in D: Fragment (store/fragment.cuh), or sm100::Piece. It has
///   kValues                       how many
///   row, col, m_end, n_end        the first one's place in D, and D's ends
///   group, expert                 whose D it is, and whose B
///   for_each_along<kAlongM, kElement, kAsC>(data, stride, visit)
///                                 visit(i, element) of a line that lies along M of D, or along N, as B's rows or C's
///                                 columns do
///   for_each_stored<kElement>(data, stride, group_stride, visit)
///                                 visit(i, element) of a matrix that lies as D does; not of what is outside
///   for_each_row(visit)           visit(i, row)
///   for_each_col(visit)           visit(i, column)
///   kRuns<kCols>, run<kCols>(i)   how many runs of so many columns of a row it has values of, and which a value is of
///   reduce_along<kCols>(of_runs, combine)
///                                 what other threads of the warp found of these runs is combined with what this one
///                                 did
///   for_each_part<kCols>(visit)   visit(run, row, first column that the warp has); for_each_held_run: by one thread
///   kExchanges, send_maximum, largest_of_run   where several warps have a run's columns (epilogue/run_exchange.cuh)
///   kReaders, reader()            threads of the warp that share a run and may each read some of its maxima
///   kQuartetValues, in_quartet(i), sum_over_quartet(x)
///                                 of four columns of a row from a multiple of 4 on: how many the thread has side by
///                                 side, which of them value i is, and the sum of what all threads have of them
///   for_each_marked(rows, first, visit)
///                                 visit(i) where rows of the tile, from `first` on, are marked (PaddingRowsOf)
///   OfD                           the place of D's values, where a gate makes one of two of the product (gate.cuh)
///   for_each_gated(values, visit) visit(i of OfD, the gate, the up)
///
/// Padding says which rows of a contiguous layout are none: for_each_value(at, tile, visit), visit(i).
template <Constant<GemmConfig> c, typename Place, typename Padding>
struct TileEnd {
    const Place& at;
    const Tile& tile;
    const Padding& padding;
    const ParamsFor<c>& params;
};

}  // namespace deep_gemm
