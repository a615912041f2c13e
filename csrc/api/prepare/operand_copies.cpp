#include "operand_copies.hpp"

#include <deep_gemm/kernels/copy_lines_params.cuh>

#include <bit>

#include "../../config/archs.hpp"
#include "../../config/host_facts.hpp"
#include "../call/kernel_table.hpp"
#include "../check/checks_lines.hpp"
#include "transpose.hpp"
#include "transpose_fp4.hpp"
#include "transpose_halves.hpp"

namespace deep_gemm {
namespace {

jit::KernelSource render(const CopyLinesConfig& config) {
    const std::string entry = concat("copy_lines_unit", config.unit_bytes);
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/copy_lines.cuh>\n\nusing namespace deep_gemm;\n\n",
                           "constexpr CopyLinesConfig kConfig{.unit_bytes = ", config.unit_bytes, "};\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(kCopyLinesThreads)\n", entry,
                           "(const __grid_constant__ CopyLinesParams params) {\n",
                           "    run_copy_lines<kConfig>(params);\n}\n")};
}

/// The same matrix in lines that start at multiples of `line_alignment` bytes, made on `stream`.
Matrix copy_lines(Device& device, const Matrix& source, const Operand& wanted, int64_t line_alignment, void* stream,
                  Workspace& workspace) {
    const Element type = wanted.element;
    const bool mn_major = wanted.mn_major();
    const int64_t length = mn_major ? source.rows : source.cols, lines = mn_major ? source.cols : source.rows;
    const int64_t line_bytes = bytes_of(type, length), stride_bytes = round_up(line_bytes, line_alignment),
                  stride = elements_in(type, stride_bytes);
    Matrix copy = source;
    (mn_major ? copy.col_stride : copy.row_stride) = stride;
    copy.group_stride = lines * stride;
    copy.bytes = static_cast<size_t>(bytes_of(type, source.groups * copy.group_stride));
    workspace = allocate_bytes(device, static_cast<int64_t>(copy.bytes));
    copy.data = workspace.data();

    const int64_t pieces = (line_bytes + kCopyLinesPiece - 1) / kCopyLinesPiece, warps = pieces * lines * source.groups;
    require(warps < (int64_t{1} << 31), "an operand to copy has ", warps,
            " pieces of 512 bytes, more than a launch counts");
    const CopyLinesParams params{.source = reinterpret_cast<const uint8_t*>(source.data),
                                 .target = reinterpret_cast<uint8_t*>(copy.data),
                                 .source_group_stride = bytes_of(type, source.group_stride),
                                 .source_stride = bytes_of(type, mn_major ? source.col_stride : source.row_stride),
                                 .target_stride = stride_bytes,
                                 .line_bytes = line_bytes,
                                 .pieces = static_cast<uint32_t>(pieces),
                                 .lines = static_cast<uint32_t>(lines),
                                 .warps = static_cast<uint32_t>(warps)};
    const uint64_t places = reinterpret_cast<uintptr_t>(source.data) | line_distances(source, wanted) |
                            static_cast<uint64_t>(params.line_bytes) | kMaxUnitBytes;
    const CopyLinesConfig config{.unit_bytes = 1 << std::countr_zero(places)};
    static KernelTable<4> table;
    const auto variant = static_cast<size_t>(std::countr_zero(places));
    const Extent extents[] = {{source.data, source.bytes, "operand to copy", false},
                              {copy.data, copy.bytes, "copied operand", true}};
    const Blocks blocks{(warps + kCopyLinesWarps - 1) / kCopyLinesWarps, kCopyLinesThreads, "an operand to copy"};
    table.launch(device, variant, [&] { return render(config); }, blocks, params, extents, stream);
    return copy;
}

/// The same rows of two codes a byte as rows of bytes.
Matrix as_bytes(Matrix codes) {
    codes.cols /= 2, codes.row_stride /= 2, codes.group_stride /= 2;
    return codes;
}
Matrix as_codes(Matrix bytes) {
    bytes.cols *= 2, bytes.row_stride *= 2, bytes.group_stride *= 2;
    return bytes;
}

/// Whether the copy engine, which takes whole lines, reads nothing behind the matrix.
bool holds_whole_lines(const Matrix& codes) {
    const int64_t last = (codes.groups - 1) * codes.group_stride + (codes.rows - 1) * codes.row_stride;
    return (last + round_up(codes.cols, kSpreadCodes)) / 2 <= static_cast<int64_t>(codes.bytes);
}

/// What lies behind K in a row is multiplied by nothing, or by zeros.
Matrix require_fp4_rows(Device& device, const Matrix& matrix, Element other, void* stream, Workspace& workspace) {
    const Arch arch = arch_of(device.facts());
    const bool by_engine =
        facts(arch).copy_engine || (host_facts(arch).unpacks_whole_lines && matrix.cols % kSpreadCodes == 0);
    const bool spread = unpacked_by_tma(Element::e2m1r, other) && by_engine;
    if (!is_k_major(matrix)) return transpose_fp4(device, matrix, stream, workspace);
    const Matrix bytes = as_bytes(matrix);
    const Operand lying{.element = Element::e4m3};
    const uint64_t places = reinterpret_cast<uintptr_t>(bytes.data) | line_distances(bytes, lying);
    if (places % (spread ? kUnpackedAlignment : kTmaAlignment) == 0 && (!spread || holds_whole_lines(matrix)))
        return matrix;
    return as_codes(copy_lines(device, bytes, lying, kBestAlignment, stream, workspace));
}

}  // namespace

jit::KernelSources copy_lines_sources(Element element) {
    jit::KernelSources sources;
    for (int32_t bytes = bytes_of(element, 1); bytes <= kMaxUnitBytes; bytes *= 2)
        sources.push_back(render(CopyLinesConfig{.unit_bytes = bytes}));
    return sources;
}

Matrix require_readable(Device& device, const Matrix& matrix, const Operand& wanted, Element other, void* stream,
                        Workspace& workspace) {
    if (wanted.element == Element::e2m1r) return require_fp4_rows(device, matrix, other, stream, workspace);
    if (is_transposed(matrix, wanted))
        return bits(wanted.element) == 16 ? transpose_halves(device, matrix, stream, workspace)
                                          : require_k_major(device, matrix, stream, workspace);
    if (is_aligned(matrix, wanted)) return matrix;
    return copy_lines(device, matrix, wanted, kBestAlignment, stream, workspace);
}

void require_readable_flat(Device& device, Matrix& matrix, Element type, void* stream, Workspace& workspace) {
    if (reinterpret_cast<uintptr_t>(matrix.data) % kTmaAlignment == 0) return;
    Matrix line{.data = matrix.data,
                .rows = 1,
                .cols = elements_in(type, static_cast<int64_t>(matrix.bytes)),
                .bytes = matrix.bytes};
    line.normalise();
    line = copy_lines(device, line, {.element = type}, kTmaAlignment, stream, workspace);
    matrix.data = line.data, matrix.bytes = line.bytes;
}

}  // namespace deep_gemm
