// Rows of padding where no role finds them ahead: each thread asks the layout for its own.
#pragma once

#include <deep_gemm/tile/scheduler.cuh>

namespace deep_gemm::sm80 {

template <Constant<GemmConfig> c>
class LayoutPadding {
public:
    DG_DEVICE explicit LayoutPadding(const GemmParams& params) : params_(params) {}

    /// visit(value) for those of rows that name no expert.
    template <typename Place, typename Visit>
    DG_DEVICE void for_each_value(const Place& at, const Tile&, const Visit& visit) const {
        const auto groups = static_cast<uint32_t>(params_.num_groups);
        at.template for_each_along<true, Element::s32>(params_.grouped_layout, 1, [&](int32_t i, int32_t expert) {
            if (static_cast<uint32_t>(expert) >= groups) visit(i);
        });
    }

private:
    const GemmParams& params_;
};

}  // namespace deep_gemm::sm80
