#include "checks_lines.hpp"

#include <deep_gemm/arch/sm80.cuh>
#include <deep_gemm/arch/sm90.cuh>

#include "../../config/host_facts.hpp"
#include "checks.hpp"

namespace deep_gemm {
namespace {

void require_k(int64_t k, Element type) {
    const int64_t step = elements_in(type, kTmaAlignment);
    require(k % step == 0, "K must be a multiple of ", step, ", got ", k,
            ": pad A and B with zeros to K=", round_up(k, step));
}

/// K or `mn` contiguous, in lines that do not overlap.
void require_lines(const Matrix& matrix, const char* name, const char* mn) {
    if (is_k_major(matrix)) {
        require(matrix.row_stride >= matrix.cols || matrix.rows <= 1, name, "'s rows overlap: row stride ",
                matrix.row_stride, " is less than K=", matrix.cols);
        return;
    }
    require(matrix.row_stride == 1 || matrix.rows == 1, name, " must have K or ", mn, " contiguous, got strides along ",
            mn, " and K of (", matrix.row_stride, ", ", matrix.col_stride, ")");
    require(matrix.col_stride >= matrix.rows, name, "'s lines along ", mn, " overlap: they are ", matrix.col_stride,
            " elements apart, less than ", mn, "=", matrix.rows);
}

/// Which the kernel reads K-major: any K-major lines, or MN-major ones, which are transposed on the way and take any K.
/// So do rows that start at multiples of 16 bytes.
void check_transposable(Matrix& matrix, Element type, const char* name, const char* mn) {
    if (matrix.cols == 1 && matrix.row_stride == 1 && matrix.rows > 1) matrix.col_stride = matrix.rows;
    require_lines(matrix, name, mn);
    if (is_k_major(matrix) && bytes_of(type, matrix.row_stride) % kTmaAlignment != 0) require_k(matrix.cols, type);
}

/// Which the kernel reads as it lies.
void check_either_major(Matrix& matrix, Element type, const char* name, const char* mn) {
    const int64_t step = elements_in(type, kTmaAlignment);
    if (matrix.cols == 1 && matrix.row_stride == 1 && matrix.rows > 1)  // a single line along M or N
        matrix.col_stride = round_up(matrix.rows, step);
    const bool k_major = is_k_major(matrix);
    if (k_major && matrix.rows == 1) matrix.row_stride = round_up(matrix.cols, step);  // a single line along K
    require_lines(matrix, name, mn);
    if (matrix.groups == 1)
        matrix.group_stride = k_major ? matrix.rows * matrix.row_stride : matrix.cols * matrix.col_stride;
}

}  // namespace

uint64_t line_distances(const Matrix& matrix, const Operand& lying) {
    const bool mn_major = lying.mn_major();
    const int64_t line = mn_major ? matrix.col_stride : matrix.row_stride, lines = mn_major ? matrix.cols : matrix.rows;
    return bytes_of(lying.element, static_cast<uint64_t>(lines > 1 ? line : 0) |
                                       static_cast<uint64_t>(matrix.groups > 1 ? matrix.group_stride : 0));
}

bool is_aligned(const Matrix& matrix, const Operand& lying) {
    return (reinterpret_cast<uintptr_t>(matrix.data) | line_distances(matrix, lying)) % kTmaAlignment == 0;
}

void check_layout(Matrix& matrix, Operand& operand, MnMajor mn_major, const char* name, const char* mn) {
    if (mn_major == MnMajor::transposed) return check_transposable(matrix, operand.element, name, mn);
    check_either_major(matrix, operand.element, name, mn);
    operand.major = is_k_major(matrix) ? Major::k : Major::mn;
    require(mn_major != MnMajor::refused || operand.major == Major::k, name, " must have K contiguous, not ", mn,
            ", beside packed weights");
}

void choose_major_of_experts(Problem& problem) {
    const bool aligned = problem.grouping == Grouping::m_contiguous || problem.grouping == Grouping::m_psum;
    static_assert(sm80::kMnBlock == kMnBlock);
    if (aligned && !host_facts(problem.arch).divides_mn_blocks && problem.m_alignment % kMnBlock != 0)
        problem.a.major = Major::k;
}

int32_t row_alignment(const Matrix& matrix, const Operand& wanted) {
    if (is_transposed(matrix, wanted)) return kBestAlignment;
    return alignment_as_read(line_distances(matrix, wanted));
}

void check_lines(GemmCall& call, const char* name_b) {
    Problem& p = call.problem;
    const Pair& pair = pair_of(p);
    const bool spread = unpacked_by_tma(p.a.element, p.b.element);  // a copy is made where it must be: require_readable
    if (!spread) check_layout(call.a, p.a, pair.mn_major, "a", "M");
    choose_major_of_experts(p);
    check_layout(call.b, p.b, pair.mn_major, name_b, "N");
    p.row_alignment_a = spread ? kBestAlignment : row_alignment(call.a, p.a);
    p.row_alignment_b = row_alignment(call.b, p.b);
}

}  // namespace deep_gemm
