// How the lines of operands lie: what kernels read, what is copied first, what is refused.
#pragma once

#include "../../config/pairs.hpp"
#include "../call/call.hpp"

namespace deep_gemm {

/// Distances between an operand's lines and groups, bitwise or, in bytes: 0 where there is one of each. A line runs
/// along K, or along M or N where the operand is MN-major.
uint64_t line_distances(const Matrix& matrix, const Operand& lying);

/// Whether the copy engine can read an operand where it lies. Elsewhere it is copied first: see operand_copies.hpp.
bool is_aligned(const Matrix& matrix, const Operand& lying);

/// Whether the kernel reads a transposed copy of an operand (operand_copies.hpp).
inline bool is_transposed(const Matrix& matrix, const Operand& wanted) {
    return wanted.major == Major::k && !is_k_major(matrix);
}

/// Refuses lines that no kernel of the pair's reads, and says how the kernel reads the others: `operand.major`.
void check_layout(Matrix& matrix, Operand& operand, MnMajor mn_major, const char* name, const char* mn);

/// Experts whose A is M-major, of an alignment that no tile which reads such rows has as a height: those are multiples
/// of 64, except where tiles divide such blocks (HostFacts). A K-major copy is read instead.
void choose_major_of_experts(Problem& problem);

/// Of an operand as the kernel will read it: where it lies, or a copy of it. By its strides alone, so that equal shapes
/// get equal kernels wherever they lie.
int32_t row_alignment(const Matrix& matrix, const Operand& wanted);

/// How the lines of both operands lie.
void check_lines(GemmCall& call, const char* name_b = "b");

}  // namespace deep_gemm
