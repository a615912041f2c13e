#include "layout_kernels.hpp"

#include <iterator>
#include <utility>

#include "../check/checks.hpp"
#include "operand_copies.hpp"
#include "row_sums.hpp"
#include "scales.hpp"
#include "transpose.hpp"
#include "transpose_fp4.hpp"
#include "unpack_int4.hpp"

namespace deep_gemm {
namespace {

void append(jit::KernelSources& to, jit::KernelSources from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// Packed weights lie as the product reads them.
jit::KernelSources of_operand(const Operand& operand, MnMajor mn_major) {
    if (operand.packed()) return {};
    if (operand.element == Element::e2m1r) {
        jit::KernelSources sources = transpose_fp4_sources();
        append(sources, copy_lines_sources(Element::e4m3));  // two codes a byte
        return sources;
    }
    jit::KernelSources sources = copy_lines_sources(operand.element);
    if (mn_major == MnMajor::transposed) append(sources, transpose_sources());
    return sources;
}

/// Scales for all of K are read as they lie, unless they are FP8's and come as exponents.
jit::KernelSources of_scales(const Operand& operand, int32_t k, bool in_blocks) {
    if (operand.scaling.per_channel() && operand.element != Element::e4m3) return {};
    return scale_sources(operand.scaling, k, in_blocks);
}

}  // namespace

jit::KernelSources layout_kernels(const Problem& p, const Choice& choice) {
    const MnMajor mn_major = pair_of(p).mn_major;
    jit::KernelSources sources =
        p.int4_a ? jit::KernelSources{unpack_int4_source(choice.config.a.element)} : of_operand(p.a, mn_major);
    append(sources, of_operand(p.b, mn_major));
    append(sources, of_scales(p.a, p.k, choice.copies.a_in_blocks));
    if (!p.b.packed()) append(sources, of_scales(p.b, p.k, choice.copies.b_in_blocks));
    append(sources, row_sums_sources(p));
    return sources;
}

}  // namespace deep_gemm
