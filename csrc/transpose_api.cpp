// The transposing kernel by itself, for tests and benchmarks.
#include "api/lender.hpp"
#include "api/transpose.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Optional;

void transpose(TensorView source, TensorView target, Optional<TensorView> ks, int64_t psum_alignment) {
    require_type(source.dtype().bits == 8 && target.dtype().bits == 8, "source and target must have one-byte elements");
    const DeviceId id = device_id_of(source, "source");
    require_device(target, "target", id, "source");
    const Matrix from = matrix_of(source, "source", true, "[G, K, MN]", true),
                 to = matrix_of(target, "target", true, "[G, MN, K]");
    require(from.row_stride == 1 || from.rows == 1, "source must have MN contiguous, but its strides are ",
            describe_strides(source));
    require(to.groups == from.groups && to.rows == from.rows, "target must be [G, MN, at least K] for source ",
            describe_shape(source), ", but has shape ", describe_shape(target));
    require(to.col_stride == 1 && to.row_stride % 16 == 0 && (to.groups == 1 || to.group_stride % 16 == 0) &&
                reinterpret_cast<uintptr_t>(to.data) % 16 == 0,
            "target's rows must start at multiples of 16 bytes, but its strides are ", describe_strides(target));
    if (from.rows == 0 || from.cols == 0 || from.groups == 0) return;
    KGroupLayout groups{};
    int64_t k_tiles = (from.cols + kTransposeTile - 1) / kTransposeTile;
    if (ks.has_value()) {
        const TensorView& layout = ks.value();
        require_type(is_int32(layout.dtype()), "ks must be int32, but is ", describe(layout.dtype()));
        require_device(layout, "ks", id, "source");
        require(from.groups == 1 && to.cols % kTransposeTile == 0,
                "K groups want one matrix, and a target whose K is a multiple of 128");
        groups = {.values = reinterpret_cast<const int32_t*>(data_of(layout)),
                  .num_groups = to_int32(layout.size(0), "the number of groups"),
                  .psum_alignment = to_int32(psum_alignment, "the alignment"),
                  .k_end = to_int32(from.cols, "K"),
                  .block_end = to_int32(to.cols / kTransposeTile, "the number of blocks")};
        k_tiles = to.cols / kTransposeTile;
    } else {
        require(to.cols >= (from.cols + 15) / 16 * 16, "target's rows must have room for K=", from.cols,
                " rounded up to 16, but have ", to.cols);
    }
    launch_transpose(Device::get(id), from, to, k_tiles, ks.has_value() ? &groups : nullptr, current_stream(id));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(transpose, deep_gemm::transpose);
