// D's type and C change no bit of a sum: a BF16 D is the FP32 one that was added to zeros, rounded.
//
// They decide which candidates are legal, and what each costs; but into how many parts K is cut, and who multiplies
// scales, is decided once for all forms of D.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tilings.hpp"

namespace deep_gemm {

/// What of a candidate decides D's last bits.
struct SumOrder {
    int32_t k_ctas = 1, k_warpgroups = 1;
    // By the tensor cores; of swapped operands they may add up a scale's parts in another order.
    bool scale_products = false, swapped_products = false;

    bool operator==(const SumOrder&) const = default;
};

inline SumOrder sum_order_of(const Candidate& candidate) {
    const bool products = candidate.config.sm90.wgmma_products;
    return {.k_ctas = candidate.tiling.cluster.k,
            .k_warpgroups = candidate.tiling.k_warpgroups,
            .scale_products = products,
            .swapped_products = products && candidate.tiling.swap_ab};
}

/// Whether all forms of D have one. Experts' rows have by themselves; dense products of a 16-bit D would pay for it.
constexpr bool keeps_sum_order(const Problem& p) { return p.grouping == Grouping::batched || divides_k(p.grouping); }

/// The usual form: with scales for each row of both operands that of gradients, which are added to FP32; else of 16
/// bits, without C.
inline Problem usual_form(Problem p) {
    const bool gradient = p.a.scaling == kRowScales && p.b.scaling == kRowScales;
    p.output = gradient ? Element::fp32 : Element::bf16;
    p.add_c = p.in_place = gradient, p.aligned_store = 1, p.output_scaling = {};
    return p;
}

/// All of them, as far as selection tells them apart.
inline std::vector<Problem> forms_of_d(Problem p) {
    std::vector<Problem> forms;
    for (const Element output : {Element::bf16, Element::fp32})
        for (const int32_t aligned : {1, 0})
            for (const auto& [add_c, in_place] : {std::pair{0, 0}, {1, 0}, {1, 1}}) {
                p.output = output, p.output_scaling = {}, p.aligned_store = aligned, p.add_c = add_c,
                p.in_place = in_place;
                forms.push_back(p);
            }
    return forms;
}

inline bool is_legal(const Candidate& candidate) { return candidate.rejection.empty(); }

/// A form, and what becomes of its tilings, once somebody has asked for all of them.
template <ArchSpec Spec>
struct Form {
    Problem problem;
    std::vector<Candidate> candidates = {};

    /// Whether it is served in the order of this candidate of another one.
    bool follows(const Candidate& other) {
        const auto does = [&](const Candidate& own) {
            return is_legal(own) && sum_order_of(own) == sum_order_of(other);
        };
        if (does(make_candidate<Spec>(problem, other.tiling, /*tolerate_waste=*/true))) return true;
        if (candidates.empty()) candidates = every_candidate<Spec>(problem, /*tolerate_waste=*/true);
        return std::ranges::any_of(candidates, does);
    }
};

/// The order that all forms follow: of the usual form's cheapest candidate for which they do. None where each may have
/// its own.
template <ArchSpec Spec>
std::optional<SumOrder> sum_order(const Problem& p) {
    if (!keeps_sum_order(p)) return std::nullopt;
    std::vector<Form<Spec>> forms;
    for (const Problem& form : forms_of_d(p)) forms.push_back({form});
    const auto followed = [&](const Candidate& candidate) {
        return std::ranges::all_of(forms, [&](Form<Spec>& form) { return form.follows(candidate); });
    };
    for (const bool tolerate_waste : {false, true}) {
        std::vector<Candidate> candidates = every_candidate<Spec>(usual_form(p), tolerate_waste);
        std::erase_if(candidates, [](const Candidate& candidate) { return !is_legal(candidate); });
        std::ranges::stable_sort(candidates, {}, &Candidate::cost_us);
        const auto found = std::ranges::find_if(candidates, followed);
        if (found != candidates.end()) return sum_order_of(*found);
    }
    return std::nullopt;
}

}  // namespace deep_gemm
