// What the GPUs that a module names as its target have: shared memory, and instructions that only some of them know.
#include "targets.hpp"

#include <algorithm>
#include <charconv>

#include "../../../util/require.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kKiB = 1024;

struct TargetFacts {
    unsigned number;
    uint32_t shared_bytes;
};
constexpr TargetFacts kTargets[] = {
    {80, 163 * kKiB},  {86, 99 * kKiB},   {87, 163 * kKiB},  {88, 99 * kKiB},  {89, 99 * kKiB},  {90, 227 * kKiB},
    {100, 227 * kKiB}, {103, 227 * kKiB}, {110, 227 * kKiB}, {120, 99 * kKiB}, {121, 99 * kKiB},
};

constexpr unsigned kNewest = 999;

/// An instruction, by its mnemonic and by modifiers of which all must be there, and the targets that have it.
struct Feature {
    std::string_view mnemonic;  // empty: any
    std::string_view modifiers[2];
    unsigned first, last;
    bool specific;  // only where the target's name ends in a or f
    const char* what;
};

constexpr const char* kTensorMaps = "tensor maps that a kernel changes";
constexpr const char* kClusters = "clusters of blocks";
constexpr const char* kFp8 = "E4M3 and E5M2";
constexpr const char* kBf16Sums = "sums and products of BF16 except fma";
constexpr const char* kVectors = "atomics on vectors";
constexpr const char* kMixed = "FP32 sums of 16-bit operands";
constexpr const char* kKinds = "mma.sync of a kind, with elements of 4 and 6 bits and block scales";
constexpr const char* kByteMatrices = "matrices of 8-bit elements";
constexpr const char* kFourRows = "copies of four rows";

constexpr Feature kFeatures[] = {
    {"wgmma", {}, 90, 90, true, "wgmma"},
    {"tcgen05", {}, 100, 119, true, "tcgen05"},
    {"cp", {"bulk"}, 90, kNewest, false, "bulk and tensor copies"},
    {"cp", {"tile::gather4", "shared::cluster"}, 100, 119, true, "copies of four rows to a block of the cluster"},
    {"cp", {"tile::scatter4"}, 100, 119, true, kFourRows},
    {"cp", {"tile::gather4"}, 100, kNewest, false, kFourRows},
    {"mbarrier", {"expect_tx"}, 90, kNewest, false, "mbarriers that count bytes"},
    {"mbarrier", {"complete_tx"}, 90, kNewest, false, "mbarriers that count bytes"},
    {"mbarrier", {"try_wait"}, 90, kNewest, false, "mbarrier.try_wait (test_wait it has)"},
    {"st", {"async"}, 90, kNewest, false, "st.async"},
    {"red", {"async", "global"}, 100, kNewest, false, "red.async to global memory"},
    {"red", {"async"}, 90, kNewest, false, "red.async"},
    {"fence", {"proxy", "async"}, 90, kNewest, false, "asynchronous proxy"},
    {"fence", {"mbarrier_init"}, 90, kNewest, false, "fence.mbarrier_init"},
    {"tensormap", {"replace"}, 90, kNewest, true, "tensormap.replace"},
    {"tensormap", {}, 90, kNewest, false, kTensorMaps},
    {"fence", {"tensormap::generic"}, 90, kNewest, false, kTensorMaps},
    {"elect", {}, 90, kNewest, false, "elect"},
    {"stmatrix", {}, 90, kNewest, false, "stmatrix"},
    {"griddepcontrol", {}, 90, kNewest, false, "griddepcontrol"},
    {"setmaxnreg", {}, 90, kNewest, true, "setmaxnreg"},
    {"mapa", {}, 90, kNewest, false, kClusters},
    {"getctarank", {}, 90, kNewest, false, kClusters},
    {"barrier", {"cluster"}, 90, kNewest, false, kClusters},
    {"", {"shared::cluster"}, 90, kNewest, false, kClusters},
    {"", {"cluster"}, 90, kNewest, false, kClusters},
    {"mma", {"e4m3"}, 89, kNewest, false, kFp8},
    {"ldmatrix", {"m8n16"}, 100, kNewest, true, "ldmatrix of 4- and 6-bit elements"},
    {"ldmatrix", {"m16n16"}, 100, kNewest, true, kByteMatrices},
    {"stmatrix", {"m16n8"}, 100, kNewest, true, kByteMatrices},
    {"mma", {"kind::f8f6f4"}, 120, kNewest, true, kKinds},
    {"mma", {"block_scale"}, 120, kNewest, true, kKinds},
    {"mma", {"e5m2"}, 89, kNewest, false, kFp8},
    {"cvt", {"e4m3x2"}, 89, kNewest, false, kFp8},
    {"cvt", {"e5m2x2"}, 89, kNewest, false, kFp8},
    {"cvt", {"e2m1x2"}, 100, kNewest, true, "types of 4 and 6 bits"},
    {"cvt", {"e2m3x2"}, 100, kNewest, true, "types of 4 and 6 bits"},
    {"cvt", {"e3m2x2"}, 100, kNewest, true, "types of 4 and 6 bits"},
    {"cvt", {"ue8m0x2"}, 100, kNewest, true, "UE8M0"},
    {"add", {"bf16"}, 90, kNewest, false, kBf16Sums},
    {"add", {"bf16x2"}, 90, kNewest, false, kBf16Sums},
    {"sub", {"bf16"}, 90, kNewest, false, kBf16Sums},
    {"sub", {"bf16x2"}, 90, kNewest, false, kBf16Sums},
    {"mul", {"bf16"}, 90, kNewest, false, kBf16Sums},
    {"mul", {"bf16x2"}, 90, kNewest, false, kBf16Sums},
    {"atom", {"bf16"}, 90, kNewest, false, "atomics on BF16"},
    {"atom", {"bf16x2"}, 90, kNewest, false, "atomics on BF16"},
    {"red", {"bf16"}, 90, kNewest, false, "atomics on BF16"},
    {"red", {"bf16x2"}, 90, kNewest, false, "atomics on BF16"},
    {"atom", {"v2"}, 90, kNewest, false, kVectors},
    {"atom", {"v4"}, 90, kNewest, false, kVectors},
    {"atom", {"v8"}, 90, kNewest, false, kVectors},
    {"red", {"v2"}, 90, kNewest, false, kVectors},
    {"red", {"v4"}, 90, kNewest, false, kVectors},
    {"red", {"v8"}, 90, kNewest, false, kVectors},
    {"clusterlaunchcontrol", {"multicast::cluster::all"}, 100, kNewest, true, "cluster launch control for all blocks"},
    {"clusterlaunchcontrol", {}, 100, kNewest, false, "cluster launch control"},
    {"redux", {"f32"}, 100, 109, true, "redux of FP32"},
    {"fma", {"f32", "bf16"}, 100, kNewest, false, kMixed},
    {"fma", {"f32", "f16"}, 100, kNewest, false, kMixed},
    {"add", {"f32", "bf16"}, 100, kNewest, false, kMixed},
    {"add", {"f32", "f16"}, 100, kNewest, false, kMixed},
    {"sub", {"f32", "bf16"}, 100, kNewest, false, kMixed},
    {"sub", {"f32", "f16"}, 100, kNewest, false, kMixed},
    {"", {"f32x2"}, 100, kNewest, false, "pairs of FP32"},
    {"ld", {"v8"}, 100, kNewest, false, "accesses of 32 bytes"},
    {"st", {"v8"}, 100, kNewest, false, "accesses of 32 bytes"},
};

bool has(const Statement& statement, std::string_view modifier) {
    // fence.proxy.async also names a space: async::shared::cta.
    return std::any_of(statement.modifiers.begin(), statement.modifiers.end(), [&](std::string_view given) {
        return given == modifier || (modifier == "async" && given.starts_with("async::"));
    });
}

bool is_of(const Feature& feature, const Statement& statement) {
    return (feature.mnemonic.empty() || feature.mnemonic == statement.mnemonic) &&
           std::all_of(std::begin(feature.modifiers), std::end(feature.modifiers),
                       [&](std::string_view modifier) { return modifier.empty() || has(statement, modifier); });
}

bool names_a_cluster(const Node& node) {
    return node.name.starts_with("%cluster") || node.name.starts_with("%nclusterid") ||
           node.name == "%is_explicit_cluster" || std::ranges::any_of(node.children, names_a_cluster);
}

std::string needed(const Feature& feature) {
    const char* const suffix = feature.specific ? "a" : "";
    if (feature.last == feature.first) return concat("sm_", feature.first, suffix);
    if (feature.last / 10 == feature.first / 10) return concat("sm_", feature.first, suffix, " or one of its family");
    if (feature.last == kNewest) return concat("sm_", feature.first, suffix, " or higher");
    return concat("a target from sm_", feature.first, suffix, " to sm_", feature.last / 10 * 10, suffix);
}

bool has(const Target& target, const Feature& feature) {
    return target.number >= feature.first && target.number <= feature.last && (target.specific || !feature.specific);
}

std::string known_targets() {
    std::string text;
    for (const TargetFacts& facts : kTargets)
        text += concat(facts.number == std::begin(kTargets)->number ? "" : ", ", "sm_", facts.number);
    return text;
}

/// What two chips of their families have, and these do not share.
constexpr Feature kTensorIntegers = {"tcgen05", {"kind::i8"}, 100, 119, true, "products of integers"};
bool has_tensor_integers(const Target& target) { return target.name == "sm_100a" || target.name == "sm_110a"; }

constexpr Feature kClusterRegisters = {"", {}, 90, kNewest, false, kClusters};
constexpr Feature kArrivals = {"mbarrier", {}, 90, kNewest, false, "arrivals by a count but with .noComplete"};

bool arrives_by_count(const Statement& statement) {
    constexpr size_t kWithCount = 3;  // state, address, count
    return statement.mnemonic == "mbarrier" && (has(statement, "arrive") || has(statement, "arrive_drop")) &&
           !has(statement, "noComplete") && statement.operands.size() == kWithCount;
}

}  // namespace

Target parse_target(std::string_view name) {
    Target target{std::string(name)};
    const char* const end = name.data() + name.size();
    bool good = name.starts_with("sm_");
    if (good) {
        const auto [rest, error] = std::from_chars(name.data() + 3, end, target.number);
        const std::string_view suffix(rest, size_t(end - rest));
        target.specific = suffix == "a" || suffix == "f";
        good = error == std::errc() && (suffix.empty() || target.specific);
    }
    require(good, "the simulator's target must be like sm_90a, got '", name, "'");
    require(std::ranges::any_of(kTargets, [&](const TargetFacts& facts) { return facts.number == target.number; }),
            "the simulator knows ", Later{known_targets}, ", and these with a or f behind them, not ", name);
    return target;
}

uint32_t shared_bytes_of(const Target& target) {
    for (const TargetFacts& facts : kTargets)
        if (facts.number == target.number) return facts.shared_bytes;
    return 0;
}

std::string why_not_on(const Target& target, const Statement& statement) {
    const auto sentence = [&](const Feature& feature) {
        return concat(target.name, " has no ", feature.what, ": ", statement.mnemonic, " needs ", needed(feature));
    };
    for (const Feature& feature : kFeatures)
        if (!has(target, feature) && is_of(feature, statement)) return sentence(feature);
    if (!has_tensor_integers(target) && is_of(kTensorIntegers, statement))
        return concat(target.name, " has no ", kTensorIntegers.what, ": ", statement.mnemonic,
                      " needs sm_100a or sm_110a");
    if (!has(target, kArrivals) && arrives_by_count(statement)) return sentence(kArrivals);
    if (!has(target, kClusterRegisters) && std::ranges::any_of(statement.operands, names_a_cluster))
        return sentence(kClusterRegisters);
    return "";
}

}  // namespace deep_gemm::simulator
