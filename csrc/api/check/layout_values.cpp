#include "layout_values.hpp"

#include <vector>

#include "../../jit/settings.hpp"
#include "../call/lender.hpp"

namespace deep_gemm {
namespace {

/// One expert for each row. All rows of a block that are no padding name the same one, a block being of so many rows as
/// experts are aligned to.
void check_indices(const std::vector<int32_t>& experts, int32_t num_groups, int32_t alignment) {
    const auto is_expert = [&](int32_t expert) { return expert >= 0 && expert < num_groups; };
    size_t first = 0;  // of the block's rows, the first that names an expert
    for (size_t row = 0; row < experts.size(); ++row) {
        if (row % alignment == 0 || !is_expert(experts[first])) first = row;
        if (is_expert(experts[row]) && experts[row] != experts[first])
            fail(ErrorKind::value,
                 "grouped_layout must start each expert's rows at a multiple of the alignment for contiguous layouts, ",
                 alignment, ", but row ", row, " belongs to expert ", experts[row], " and row ", first, " to expert ",
                 experts[first], ": see get_mk_alignment_for_contiguous_layout()");
    }
}

/// Where each expert's rows end. That of an empty one may be the end before it, as a running sum has it.
void check_ends(const std::vector<int32_t>& ends, int32_t alignment) {
    int64_t before = 0;
    for (size_t expert = 0; expert < ends.size(); ++expert) {
        const int64_t end = ends[expert], start = (before + alignment - 1) / alignment * alignment;
        require(end >= 0, "grouped_layout must hold where each expert's rows end, but says ", end, " of expert ",
                expert);
        require(end >= start || end == before, "grouped_layout must hold where each expert's rows end, got for expert ",
                expert, " ", end, ", before its first row ", start, ": expert ", static_cast<int64_t>(expert) - 1,
                " ends at ", before, ", rounded up to the alignment for contiguous layouts, ", alignment);
        before = end;
    }
}

void check_row_counts(const std::vector<int32_t>& counts) {
    for (size_t expert = 0; expert < counts.size(); ++expert)
        require(counts[expert] >= 0, "masked_m must not be negative, got ", counts[expert], " for expert ", expert);
}

}  // namespace

bool reads_counts(const GemmCall& call) {
    using jit::CheckLayouts;
    if (!is_m_grouped(call.problem.grouping) || call.device.recorded) return false;
    const CheckLayouts wanted = jit::settings().check_layouts;
    return wanted == CheckLayouts::all || (wanted == CheckLayouts::on_cpu && call.device.holds_values());
}

void check_counts(const GemmCall& call) {
    if (!reads_counts(call) || call.grouped_layout_bytes == 0) return;
    std::vector<int32_t> counts(call.grouped_layout_bytes / sizeof(int32_t));
    Device& device = *call.runs_on;
    void* const stream = current_stream(call.device);
    if (device.is_capturing(stream)) return;
    device.read(counts.data(), call.grouped_layout, call.grouped_layout_bytes, stream);
    const Problem& p = call.problem;
    if (p.grouping == Grouping::masked)
        check_row_counts(counts);
    else if (p.grouping == Grouping::m_psum)
        check_ends(counts, p.m_alignment);
    else
        check_indices(counts, p.num_groups, p.m_alignment);
}

}  // namespace deep_gemm
