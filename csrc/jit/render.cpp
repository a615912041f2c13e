#include "render.hpp"

#include <ostream>
#include <sstream>
#include <type_traits>

#include "../config/fields.hpp"
#include "../util/require.hpp"

namespace deep_gemm {
namespace {

/// A value as C++ source; a struct as designated initialisers, or as its parts where it is derived from some.
template <typename Value>
void write_value(std::ostream& out, const Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
        out << (value ? "true" : "false");
    } else if constexpr (std::is_enum_v<Value>) {
        out << Names<Value>::kType << "::" << name(value);
    } else if constexpr (HasFields<Value>) {
        const char* between = "";
        out << "{";
        for_each_field(value, [&](const auto& field, const auto& of_field) {
            if constexpr (is_derived<Value>())
                out << between << "\n    " << (HasFields<std::remove_cvref_t<decltype(of_field)>> ? field.name : "");
            else
                out << between
                    << (field.begins_line ? "\n        "
                        : *between == 0   ? ""
                                          : " ")
                    << "." << field.name << " = ";
            write_value(out, of_field);
            between = ",";
        });
        out << "}";
    } else {
        out << value;
    }
}

/// What functions for operands of this element are called.
std::string_view family(Element element) {
    return element == Element::e4m3    ? "fp8"
           : element == Element::s8    ? "int8"
           : element == Element::s4i   ? "int4"
           : element == Element::e2m1r ? "fp4"
                                       : name(element);
}

/// What a grouping is called in names: the sum over a batch as public scripts look for it.
std::string_view grouping_name(Grouping grouping) {
    return grouping == Grouping::batch_sum ? "bmn_bnk_mn_gemm_impl" : name(grouping);
}

/// What profilers show: element, architecture, grouping, tile, cluster. The tile is written as `explain` does.
std::string kernel_name(const Choice& choice) {
    const GemmConfig& c = choice.config;
    const auto unless_one = [](bool one, const auto&... parts) { return one ? std::string() : concat(parts...); };
    return concat(family(choice.tiling.preconvert == Preconvert::a ? Element::e4m3 : c.a.element), "_gemm_",
                  name(c.arch), "_", grouping_name(c.grouping), c.swap_ab ? "_swapped_" : "_", c.tile.rows, "x",
                  c.tile.cols,
                  unless_one(c.cluster.size() == 1, "_cluster", c.cluster.rows, "x", c.cluster.cols, "x", c.cluster.k),
                  unless_one(choice.tiling.k_warpgroups == 1, "_k_warpgroups", choice.tiling.k_warpgroups),
                  choice.tiling.preconvert == Preconvert::a ? "_widened" : "", c.heads.any() ? "_heads" : "");
}

}  // namespace

std::string config_text(const GemmConfig& config) {
    std::ostringstream out;
    write_value(out, config);
    return out.str();
}

jit::KernelSource render(const Choice& choice) {
    const GemmConfig& config = choice.config;
    const std::string header = concat("gemm_", name(config.arch)), entry = kernel_name(choice);
    return {.name = entry,
            .text = concat("#include <deep_gemm/kernels/", header, ".cuh>\n\nusing namespace deep_gemm;\n\n",
                           choice.hint, "constexpr GemmConfig kConfig", config_text(config), ";\n\n",
                           "extern \"C\" __global__ void __launch_bounds__(threads(kConfig), ",
                           choice.footprint.ctas_per_sm, ")\n", entry,
                           "(const __grid_constant__ ParamsFor<kConfig> params) {\n    run_", header,
                           "<kConfig>(params);\n}\n")};
}

}  // namespace deep_gemm
