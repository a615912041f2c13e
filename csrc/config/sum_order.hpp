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
    p.add_c = gradient, p.in_place = gradient, p.aligned_store = 1, p.output_scaling = {};
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

/// Whether a tiling may add up so: what its candidate decides is asked of that.
constexpr bool may_follow(const Tiling& tiling, const SumOrder& order) {
    return tiling.cluster.k == order.k_ctas && tiling.k_warpgroups == order.k_warpgroups;
}

inline bool follows(const Candidate& candidate, const SumOrder& order) {
    return is_legal(candidate) && sum_order_of(candidate) == order;
}

/// Whether any tiling serves a problem in this order, whatever it wastes.
template <ArchSpec Spec>
bool is_served_in(const Problem& p, const SumOrder& order) {
    const CostsOf<Spec> costs = Spec::cost_constants(p);
    return std::ranges::any_of(Spec::tilings(p), [&](const Tiling& tiling) {
        return may_follow(tiling, order) && follows(make_candidate<Spec>(p, tiling, costs, Tolerated::waste), order);
    });
}

/// A form, and in which orders it is served, of those that were asked for.
template <ArchSpec Spec>
struct Form {
    Problem problem;
    CostsOf<Spec> costs = Spec::cost_constants(problem);
    std::vector<std::pair<SumOrder, bool>> known = {};

    /// Whether it is served in the order of this candidate of another one.
    bool is_served_as(const Candidate& other) {
        const SumOrder order = sum_order_of(other);
        if (follows(make_candidate<Spec>(problem, other.tiling, costs, Tolerated::waste), order)) return true;
        for (const auto& [asked, served] : known)
            if (asked == order) return served;
        known.emplace_back(order, is_served_in<Spec>(problem, order));
        return known.back().second;
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
        return std::ranges::all_of(forms, [&](Form<Spec>& form) { return form.is_served_as(candidate); });
    };
    for (const Tolerated tolerated : {Tolerated::nothing, Tolerated::waste}) {
        std::vector<Candidate> candidates = every_candidate<Spec>(usual_form(p), tolerated);
        std::erase_if(candidates, [](const Candidate& candidate) { return !is_legal(candidate); });
        std::ranges::stable_sort(candidates, {}, &Candidate::cost_us);
        const auto found = std::ranges::find_if(candidates, followed);
        if (found != candidates.end()) return sum_order_of(*found);
    }
    return std::nullopt;
}

/// The order that a problem's candidates must have, if any. Fewer tiles quantise: where none of them adds up so, all
/// may.
template <ArchSpec Spec>
std::optional<SumOrder> wanted_order(const Problem& p) {
    const std::optional<SumOrder> order = sum_order<Spec>(p);
    if (order && p.output_scaling.any() && !is_served_in<Spec>(p, *order)) return std::nullopt;
    return order;
}

}  // namespace deep_gemm
