#include "scale_values.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "../../config/pairs.hpp"

namespace deep_gemm {
namespace {

/// Rows of A that belong to an expert, all groups' one after the other. Empty: all do.
std::vector<bool> rows_that_count(const GemmCall& call) {
    const Problem& p = call.problem;
    if (!is_m_grouped(p.grouping)) return {};
    const int32_t* const values = call.grouped_layout;
    const bool masked = p.grouping == Grouping::masked;
    std::vector<bool> counts(static_cast<size_t>(masked ? p.num_groups : 1) * p.m);
    const auto mark = [&](int64_t first, int64_t end) {
        for (int64_t row = first; row < end; ++row) counts[row] = true;
    };
    if (p.grouping == Grouping::m_contiguous) {
        for (int32_t row = 0; row < p.m; ++row) counts[row] = values[row] >= 0 && values[row] < p.num_groups;
        return counts;
    }
    int64_t start = 0;
    for (int64_t group = 0; group < p.num_groups; ++group) {
        const int64_t rows = std::clamp(values[group], 0, p.m);
        if (masked) {
            mark(group * p.m, group * p.m + rows);
        } else {
            mark(start, rows);
            start = round_up(rows, p.m_alignment);
        }
    }
    return counts;
}

/// Scales along K that K groups use: what follows them may be anything.
int64_t scales_that_count(const GemmCall& call, const Scales& s) {
    if (call.problem.grouping != Grouping::k_contiguous) return s.k_scales;
    const KGroupLayout& groups = call.k_groups;
    int64_t count = 0, end = 0;
    for (int32_t group = 0; group < groups.num_groups; ++group) {
        int64_t k = groups.values[group];
        if (groups.psum_alignment > 0) {
            const int64_t begin = round_up(end, groups.psum_alignment);
            end = k, k -= begin;
        }
        count += (std::max<int64_t>(k, 0) + s.scaling.k - 1) / s.scaling.k;
    }
    return std::min(count, s.k_scales);
}

float scale_at(const Scales& s, int64_t group, int64_t row, int64_t k) {
    float value;
    const int64_t index = group * s.group_stride + row * s.row_stride + k * s.k_stride;
    std::memcpy(&value, static_cast<const char*>(s.data) + index * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
}

/// As the packing kernel judges (to_ue8m0).
bool has_exponent(float value) { return (std::bit_cast<uint32_t>(value) & 0x807fffffu) == 0; }

/// The function that quantises anew.
std::string_view cast_of(const Scales& s, const Operand& operand) {
    if (operand.element == Element::e2m1r) return "per_token_cast_to_fp4";
    if (s.row_granularity > 1) return "per_block_cast_to_fp8";
    return operand.mn_major() ? "per_channel_cast_to_fp8" : "per_token_cast_to_fp8";
}

[[noreturn]] void refuse(const Problem& p, const Scales& s, const Operand& operand, const char* name, float value,
                         int64_t row, int64_t k) {
    const bool square = s.row_granularity == 1 || s.row_granularity == s.scaling.k;
    const std::string advice =
        square ? concat("quantise the data anew with deep_gemm.utils.", cast_of(s, operand),
                        "(x, use_ue8m0=True, gran_k=", s.scaling.k, ")")
               : std::string("quantise the data anew, with scales that deep_gemm.utils.ceil_to_ue8m0 has rounded up");
    fail(ErrorKind::value, name, " must be powers of two on Blackwell, but that of row ", row * s.row_granularity,
         " and K from ", k * s.scaling.k, " is ", value, ": ", advice,
         find_pair(p.arch, p.a.element, p.b.element, Element::fp32) == nullptr
             ? ""
             : ", or have FP32 scales multiplied as they are: disable_ue8m0_cast=True, or "
               "deep_gemm.set_fp32_scales(True)");
}

void check_one(const Problem& p, const Scales& s, const Operand& operand, const char* name,
               const std::vector<bool>& counts, int64_t k_scales) {
    if (s.scaling.type != Element::ue8m0 || s.element != Element::fp32) return;
    const auto any_counts = [&](int64_t group, int64_t row) {
        if (counts.empty()) return true;
        const int64_t first = row * s.row_granularity,
                      end = std::min<int64_t>(first + s.row_granularity, s.operand_rows);
        const auto begin = counts.begin() + group * s.operand_rows;
        return std::any_of(begin + first, begin + end, [](bool each) { return each; });
    };
    for (int64_t group = 0; group < s.groups; ++group)
        for (int64_t row = 0; row < s.rows; ++row) {
            if (!any_counts(group, row)) continue;
            for (int64_t k = 0; k < k_scales; ++k)
                if (const float value = scale_at(s, group, row, k); !has_exponent(value))
                    refuse(p, s, operand, name, value, row, k);
        }
}

}  // namespace

void check_scale_values(const GemmCall& call) {
    if (!call.device.holds_values() || call.problem.a.scaling.type != Element::ue8m0) return;
    const Problem& p = call.problem;
    check_one(p, call.scales_a, p.a, "a's scales", rows_that_count(call), scales_that_count(call, call.scales_a));
    check_one(p, call.scales_b, p.b, "b's scales", {}, scales_that_count(call, call.scales_b));
}

}  // namespace deep_gemm
