#include "unpack_int4.hpp"

#include <deep_gemm/kernels/unpack_int4_params.cuh>

#include "../call/kernel_table.hpp"

namespace deep_gemm {
namespace {

/// A kernel, and how much of a row one of its threads reads.
struct Way {
    std::string_view name;
    int32_t thread_bytes;
};
constexpr Way kUnpack{"unpack_int4", kUnpackInt4Bytes}, kInterleave{"interleave_int4", kInterleaveInt4Bytes};

jit::KernelSource render(const Way& way) {
    return {
        .name = std::string(way.name),
        .text = concat("#include <deep_gemm/kernels/unpack_int4.cuh>\n\nusing namespace deep_gemm;\n\n",
                       "extern \"C\" __global__ void __launch_bounds__(kUnpackInt4Threads)\n", way.name,
                       "(const __grid_constant__ UnpackInt4Params params) {\n    run_", way.name, "(params);\n}\n")};
}

const Way& way_to(Element element) { return element == Element::s4i ? kInterleave : kUnpack; }

}  // namespace

jit::KernelSource unpack_int4_source(Element element) { return render(way_to(element)); }

Matrix unpack_int4(Device& device, const Matrix& matrix, Element element, void* stream, Workspace& workspace) {
    const bool interleaves = element == Element::s4i;
    const Way& way = way_to(element);
    // What is interleaved ends with whole threads' shares: past K they hold zeros among the others.
    const int64_t row_bytes = interleaves ? round_up(matrix.cols, way.thread_bytes) : matrix.cols;
    Matrix unpacked{.groups = matrix.groups, .rows = matrix.rows, .cols = 2 * row_bytes};
    const int64_t stride_bytes = round_up(bytes_of(element, unpacked.cols), kBestAlignment);
    unpacked.row_stride = elements_in(element, stride_bytes);
    unpacked.group_stride = unpacked.rows * unpacked.row_stride;
    unpacked.bytes = static_cast<size_t>(unpacked.groups * unpacked.rows * stride_bytes);
    workspace = allocate_bytes(device, static_cast<int64_t>(unpacked.bytes));
    unpacked.data = workspace.data();
    const int64_t row_pieces = (matrix.cols + way.thread_bytes - 1) / way.thread_bytes,
                  pieces = matrix.groups * matrix.rows * row_pieces;
    const UnpackInt4Params params{.source = reinterpret_cast<const uint8_t*>(matrix.data),
                                  .target = reinterpret_cast<uint8_t*>(unpacked.data),
                                  .source_group_stride = matrix.group_stride,
                                  .source_stride = matrix.row_stride,
                                  .target_stride = stride_bytes,
                                  .row_bytes = matrix.cols,
                                  .pieces = pieces,
                                  .row_pieces = static_cast<uint32_t>(row_pieces),
                                  .rows = static_cast<uint32_t>(matrix.rows)};
    const Extent extents[] = {{matrix.data, matrix.bytes, "a", false},
                              {unpacked.data, unpacked.bytes, "unpacked a", true}};
    const Blocks blocks{(pieces + kUnpackInt4Threads - 1) / kUnpackInt4Threads, kUnpackInt4Threads,
                        "activations to unpack"};
    static KernelTable<2> table;
    table.launch(device, interleaves, [&] { return render(way); }, blocks, params, extents, stream);
    return unpacked;
}

}  // namespace deep_gemm
