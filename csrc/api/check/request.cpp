#include "request.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

#include "../../config/archs.hpp"
#include "../../config/explain.hpp"
#include "../../config/products_text.hpp"
#include "checks.hpp"
#include "checks_lines.hpp"

namespace deep_gemm {
namespace {

int32_t extent(int64_t value, const char* what) {
    require(value >= 1 && value < (int64_t{1} << 31), what, " must be between 1 and 2^31 - 1, got ", value);
    return static_cast<int32_t>(value);
}

/// An operand whose lines follow each other without a gap, as a call sees it.
Matrix packed(int32_t groups, int32_t rows, int32_t k, bool mn_major) {
    Matrix matrix{.groups = groups, .rows = rows, .cols = k, .group_stride = int64_t{rows} * k};
    matrix.row_stride = mn_major ? 1 : k, matrix.col_stride = mn_major ? rows : 1;
    matrix.normalise();
    return matrix;
}

/// Refuses, in the calls' own words, what every call with packed operands refuses.
void check_packed_operands(Problem& p) {
    const bool batched = p.grouping == Grouping::batched;
    Matrix a = packed(p.grouping == Grouping::masked || batched ? p.num_groups : 1, p.m, p.k, p.a.mn_major());
    Matrix b = packed(is_m_grouped(p.grouping) || batched ? p.num_groups : 1, p.n, p.k, p.b.mn_major());
    const MnMajor mn_major = pair_of(p).mn_major;
    check_layout(a, p.a, mn_major, "a", "M");
    choose_major_of_experts(p);
    p.row_alignment_a = row_alignment(a, p.a);
    if (pair_of(p).of_packed_weights()) return;
    check_layout(b, p.b, mn_major, "b", "N");
    p.row_alignment_b = row_alignment(b, p.b);
}

/// These set a field of this name, and say whether there is one.
bool set_number(Problem& p, std::string_view name, int64_t value) {
    struct Number {
        std::string_view name;
        int32_t Problem::* member;
        const char* meaning;
    };
    constexpr Number kNumbers[] = {{"m", &Problem::m, "M"},
                                   {"n", &Problem::n, "N"},
                                   {"k", &Problem::k, "K"},
                                   {"groups", &Problem::num_groups, "the number of groups"},
                                   {"alignment", &Problem::m_alignment, "the alignment"},
                                   {"num_sms", &Problem::num_sms, "num_sms"}};
    const auto* const found = std::ranges::find(kNumbers, name, &Number::name);
    if (found == std::end(kNumbers)) return false;
    p.*found->member = extent(value, found->meaning);
    return true;
}

bool set_flag(Problem& p, std::string_view name, int64_t value) {
    struct Flag {
        std::string_view name;
        int32_t Problem::* member;
    };
    constexpr Flag kFlags[] = {{"add_c", &Problem::add_c},
                               {"in_place", &Problem::in_place},
                               {"alpha", &Problem::alpha},
                               {"row_scale", &Problem::row_scale},
                               {"random_rounding", &Problem::random_rounding},
                               {"clamped", &Problem::clamped},
                               {"asymmetric_a", &Problem::asymmetric_a},
                               {"int4_a", &Problem::int4_a},
                               {"group_maps", &Problem::group_maps},
                               {"batch_invariant", &Problem::batch_invariant},
                               {"packs_scales_a", &Problem::packs_scales_a},
                               {"packs_scales_b", &Problem::packs_scales_b}};
    const auto* const found = std::ranges::find(kFlags, name, &Flag::name);
    if (found == std::end(kFlags)) return false;
    p.*found->member = value != 0;
    return true;
}

/// "s4m" of packed weights, "e2m1r" of FP4 in rows.
bool set_weights(Element& weights, std::string_view name, int64_t value) {
    for (const Pair& pair : kPairs) {
        if (!pair.of_packed_weights() || name != facts(pair.b).name) continue;
        if (value != 0) weights = pair.b;
        return true;
    }
    return false;
}

/// "fp16" of both operands, "fp16_output" of D.
bool set_element(Element& operands, Element& output, std::string_view name, int64_t value) {
    for (const Pair& pair : kPairs) {
        if (name == facts(pair.a).name) {
            if (value != 0) operands = pair.a;
            return true;
        }
        for (const Element each : pair.outputs) {
            if (each == Element::none || name != concat(facts(each).name, "_output")) continue;
            if (value != 0) output = each;
            return true;
        }
    }
    return false;
}

bool set_heads(HeadSplits& heads, std::string_view name, int64_t value) {
    bool found = false;
    for_each_field(heads, [&](const auto& field, int32_t& columns) {
        if (concat("head_", field.name) != name) return;
        found = true;
        columns = extent(value, "a part of a head");
    });
    return found;
}

bool set_part(Tiling& tiling, std::string_view name, int64_t value) {
    bool found = false;
    for_each_number(tiling, [&](const std::string& part, auto& number) {
        if (part != name) return;
        found = true;
        using Number = std::remove_cvref_t<decltype(number)>;
        if constexpr (std::is_same_v<Number, bool>)
            number = value != 0;
        else if constexpr (std::is_enum_v<Number>)
            number = value_at<Number>(value, part);
        else
            number = extent(value, part.c_str());
    });
    return found;
}

/// How an operand of a problem is scaled: the first of the pair's scalings that is of what was asked for.
struct WantedScaling {
    bool per_row = false;
    int32_t k = 0;                 // that share a scale; 0: any
    Element type = Element::none;  // none: that of the first one

    Scaling among(std::span<const Scaling> listed, const char* operand) const {
        const auto fits = [&](const Scaling& scaling) {
            const bool fits_type = type != Element::none ? scaling.type == type
                                                         : scaling.type == listed[0].type || scaling.in_instruction();
            return scaling.any() && fits_type && (k == 0 || scaling.k == k) && (!per_row || scaling.rows == 1);
        };
        const auto found = std::ranges::find_if(listed, fits);
        require(found != listed.end() || k == 0, "the pair has no scales of ", operand, " for every ", k, " of K");
        return found == listed.end() ? listed[0] : *found;
    }
};

}  // namespace

Request request_of(const std::string& kind, const Object& fields, const Target& target) {
    Request request;
    auto& [p, tiling] = request;
    p.arch = target ? arch_of(*target) : Arch::sm90;
    if (target) set_target(p, find_target(*target)->facts);
    p.grouping = grouping_named(kind);
    WantedScaling scaling_a, scaling_b;
    Element element = Element::e4m3, weights = Element::none, output = Element::none, quantised_to = Element::e4m3;
    int32_t zeros_k = 0;                                                   // 0: any
    bool token_scales = false;                                             // one a token, where there could be more
    bool channel_scales = false;                                           // one a channel, likewise
    bool conversion_scales = false;                                        // of so many K, multiplied into weights
    bool fp32_scales = false;                                              // where there are exponents too
    int64_t expected_m = 0, dims = divides_k(p.grouping) ? 1 | 2 : 2 | 4;  // "mn" and "nk"
    const auto set = [&, &p = p, &tiling = tiling](const std::string& name, int64_t value) {
        if (set_number(p, name, value) || set_flag(p, name, value) || set_part(tiling, name, value) ||
            set_heads(p.heads, name, value))
            return;
        if (name == "compiled_dims")
            dims = value;
        else if (name == "expected_m")
            expected_m = value;
        else if (name == "gate")
            p.gate.kind = value_at<GateKind>(value, name);
        else if (name == "gate_rows")
            p.gate.rows = value_at<GateRows>(value, name);
        else if (name == "per_row_b")
            scaling_b.per_row = value != 0;
        else if (name == "gran_k_a" || name == "gran_k_b")
            (name == "gran_k_a" ? scaling_a : scaling_b).k = extent(value, name.c_str());
        else if (name == "mn_major_a" || name == "mn_major_b")
            (name == "mn_major_a" ? p.a : p.b).major = value != 0 ? Major::mn : Major::k;
        else if (name == "bias" || name == "fp32_bias")
            p.bias = value == 0 ? p.bias : name == "bias" ? Element::bf16 : Element::fp32;
        else if (name == "fp4")  // both operands
            element = value != 0 ? Element::e2m1r : element;
        else if (name == "fp4_a")  // beside FP8
            element = value != 0 ? Element::e2m1r : element, weights = value != 0 ? Element::e4m3 : weights;
        else if (name == "zeros_k")
            zeros_k = value == kAll ? kAll : extent(value, "zeros_k");
        else if (name == "token_scales" || name == "channel_scales")
            (name == "token_scales" ? token_scales : channel_scales) = value != 0;
        else if (name == "conversion_scales")
            conversion_scales = value != 0;
        else if (name == "fp32_scales")
            fp32_scales = value != 0;
        else if (name == "quantised")  // D: columns that share an FP32 scale
            p.output_scaling = {Element::fp32, 1, extent(value, "quantised")};
        else if (name == "quantised_int8")
            quantised_to = value != 0 ? Element::s8 : Element::e4m3;
        else if (name == "quantised_words")  // or an exponent
            p.output_scaling = {Element::ue8m0, 1, extent(value, "quantised_words")};
        else if (!set_weights(weights, name, value) && !set_element(element, output, name, value))
            fail(ErrorKind::value, "a problem has no field ", name);
    };
    for (const auto& [name, value] : fields) set(name, std::get<int64_t>(value));
    for (const int32_t value : {p.m, p.n, p.k, p.num_sms}) require(value > 0, "a problem needs m, n, k and num_sms");
    p.device_sms = p.num_sms;
    if (p.grouping == Grouping::k_contiguous) p.k = round_up_coarsely(p.k);  // see finish_k_grouped
    if (divides_k(p.grouping)) dims &= ~int64_t{4};
    p.a.element = element, p.b.element = weights == Element::none ? element : weights;
    const Pair* const found = find_pair(p.arch, p.a.element, p.b.element, fp32_scales ? Element::fp32 : Element::none);
    require(found != nullptr, "there is no product of ", name(element),
            weights == Element::none ? "" : concat(" and ", name(weights)), fp32_scales ? " with FP32 scales" : "",
            " on ", name(p.arch), ", which has ", products_text(p.arch));
    const Pair& pair = *found;
    require(!target || pair.sum != Element::s32 || find_target(*target)->facts.multiplies_integers, kNoIntegers,
            target.value_or(""));
    p.output = output == Element::none ? pair.outputs[0] : output;
    if (p.output_scaling.any()) p.output = quantised_to;
    require(p.output_scaling.any() || lists<Element>(pair.outputs, p.output), "there is no product of ", name(element),
            " whose D is ", name(p.output));
    p.a.scaling = scaling_a.among(pair.scalings_a, "a");
    if (conversion_scales) scaling_b.type = Element::ue5m3;
    p.b.scaling = scaling_b.among(pair.scalings_b, "b");
    if (!p.a.scaling.in_instruction()) p.packs_scales_a = p.packs_scales_b = 0;
    if (token_scales && lists<Scaling>(pair.scalings_a, kWholeRowScales)) p.a.scaling = kWholeRowScales;
    if (channel_scales && lists<Scaling>(pair.scalings_b, kWholeRowScales)) p.b.scaling = kWholeRowScales;
    if (subtracts_zeros(p.b.element)) p.b.zeros_k = zeros_k != 0 ? zeros_k : p.b.scaling.k;
    require(p.b.zeros_k == 0 || lists<int32_t>(pair.zeros_k, p.b.zeros_k), "the pair has no zero points for every ",
            p.b.zeros_k, " of K");
    require(!pair.equal_scalings || p.a.scaling == p.b.scaling, "scales of a and b are for as much of K in this pair");
    if (p.output == Element::s32) p.a.scaling = p.b.scaling = kUnscaled;
    require(!p.asymmetric_a || (sum_of(p.a.element) == Element::s32 && p.a.scaling.per_channel()),
            "zero points are of integers whose scales all of K shares");
    require(p.bias == Element::none || p.a.scaling.any(), "a bias is of products with scales");
    require(pair.mn_major == MnMajor::as_it_lies || (!p.a.mn_major() && !p.b.mn_major()),
            "operands of this pair are K-major");
    p.expected_m = coarse_hint(p, expected_m);
    p.aligned_store = int64_t{p.gate.columns(p.n)} * bytes_of(p.output, 1) % 16 == 0;
    if (!divides_k(p.grouping)) check_packed_operands(p);
    require_gate_is_served(p);
    p.compiled = {.m = dims & 1 ? p.m : 0, .n = dims & 2 ? p.n : 0, .k = dims & 4 ? p.k : 0};
    const bool selected = tiling.tile_rows == 0 && tiling.tile_cols == 0;
    require(selected || (tiling.tile_rows > 0 && tiling.tile_cols > 0), "a config has both tile_rows and tile_cols");
    return request;
}

}  // namespace deep_gemm
