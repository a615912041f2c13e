#include "layer.hpp"

#include <map>

#include "../api/call/call_settings.hpp"
#include "../api/call/dtypes.hpp"
#include "../api/call/generation.hpp"
#include "../api/call/lender.hpp"
#include "../api/check/checks_channel_scales.hpp"
#include "../api/check/checks_grouped.hpp"
#include "../api/check/layout_values.hpp"
#include "../api/prepare/operand_copies.hpp"
#include "../api/prepare/scales.hpp"
#include "../api/run/params.hpp"

namespace deep_gemm {
namespace {

constexpr int64_t kRowsAlongK = 0;  // both operands of a product K-major
constexpr int64_t kMinRows = 8;     // of a tile, which has a counter

/// Weights of both kinds, as checks take them.
struct LayerWeights {
    const TensorView& data;
    const OptionalTensor &scales, &second_scales, &zeros;
    const std::optional<ffi::Integers>& packing;
    const char *name, *scales_name;
    PackedArgument packed = packing ? packing_of(*packing) : PackedArgument{};

    OperandArgument operand() const {
        require(packing || (!second_scales && !zeros), name, " must be packed weights to have zeros or second scales");
        return {.data = data,
                .scales = scales,
                .packed = packing ? &packed : nullptr,
                .name = name,
                .scales_name = scales_name};
    }

private:
    PackedArgument packing_of(const ffi::Integers& numbers) const {
        require(numbers.size() == 6, "packed weights of a layer must come with six numbers, got ", numbers.size());
        return {.element = static_cast<Element>(numbers[0]),
                .rows = numbers[1],
                .k = numbers[2],
                .group_k = numbers[3],
                .grouped = true,
                .second_scales = &second_scales,
                .zeros_k = numbers[4],
                .zeros = zeros,
                .near_scales = numbers[5] != 0};
    }
};

struct Product {
    GemmCall call;
    Workspace weights = {}, scales_a = {}, scales_b = {};  // copies of what the kernel cannot read where it lies
};

Product check(OperandArgument rows, const OperandArgument& weights, const OutputArgument& d, const TensorView& ends,
              int64_t expected_m, const GateRecord& gate) {
    const ChannelArgument no_zeros{};
    if (weights.packed != nullptr) rows.whole = &no_zeros;
    const ContiguousOptions options{.psum = true, .zero_padding = false, .expected_m = expected_m};
    return {.call = check_contiguous(rows, weights, d, ends, {}, kRowsAlongK, options, gate)};
}

/// Of rows that have no memory, or not for all of them: what checks look at.
class Shape {
public:
    Shape(const TensorView& like, DLDataType dtype, int64_t rows, int64_t columns, int64_t row_stride,
          int64_t column_stride)
        : sizes_{rows, columns},
          strides_{row_stride, column_stride},
          tensor_{nullptr, like.device(), 2, dtype, sizes_, strides_, 0} {}
    Shape(const Shape&) = delete;
    TensorView view() const { return TensorView(tensor_); }

private:
    int64_t sizes_[2], strides_[2];
    DLTensor tensor_;
};

uint32_t* check_counters(const TensorView& counters, const char* name, const GemmCall& up, int64_t rows) {
    require_type(is_int32(counters.dtype()), name, " must be int32, got ", describe(counters.dtype()));
    require_device(counters, name, up.device, "rows");
    const int64_t wanted = (rows + kMinRows - 1) / kMinRows;
    require(counters.ndim() == 1 && counters.size(0) >= wanted && counters.stride(0) == 1, name, " must be [", wanted,
            "] or more, contiguous, got shape ", describe_shape(counters));
    return reinterpret_cast<uint32_t*>(counters.data());
}

struct LayerPlan {
    LaunchPlan up, down;
    const Kernel* kernel = nullptr;
    LaunchShape shape = {};
};

LayerPlan make_plan(Device& device, const Problem& up, const Problem& down, bool travels) {
    const MoeLayerChoice choice = choose_moe_layer(up, down, travels);
    LayerPlan plan{.up = {.choice = choice.up}, .down = {.choice = choice.down}};
    const int32_t smem_bytes = std::max(choice.up.footprint.smem_bytes, choice.down.footprint.smem_bytes);
    plan.shape = {.grid = static_cast<uint32_t>(choice.up.num_ctas),
                  .block = static_cast<uint32_t>(choice.up.footprint.threads),
                  .cluster = static_cast<uint32_t>(choice.up.config.cluster.size()),
                  .smem_bytes = static_cast<uint32_t>(smem_bytes),
                  .cooperative = true};
    plan.kernel = jit::get_kernel(device, render(choice, travels), plan.shape.smem_bytes);
    return plan;
}

/// Of the latest problems of a thread and device. The simulator may become another GPU, and plans anew.
LayerPlan plan_of(Device& device, const Problem& up, const Problem& down, bool travels, uint64_t generation) {
    if (device.id().simulated) return make_plan(device, up, down, travels);
    struct Known {
        Problem down;
        LayerPlan plan;
    };
    struct OfDevice {
        uint64_t generation = Generation::kNone;
        std::unordered_map<Problem, Known, ProblemHash> plans[2];  // where rows stay, and where they travel
    };
    thread_local std::map<const Device*, OfDevice> all;
    OfDevice& known = all[&device];
    if (known.generation != generation) known = OfDevice{generation, {}};
    auto& plans = known.plans[travels];
    const auto found = plans.find(up);
    if (found != plans.end() && found->second.down == down) return found->second.plan;
    return plans.insert_or_assign(up, Known{down, make_plan(device, up, down, travels)}).first->second.plan;
}

void prepare(Product& product, Device& device, void* stream) {
    GemmCall& call = product.call;
    call.b = require_readable(device, call.b, call.problem.b, call.problem.a.element, stream, product.weights);
    require_layout(device, call.scales_a, false, stream, product.scales_a);
    require_layout(device, call.scales_b, false, stream, product.scales_b);
}

/// What blocks exchange is named once: as what the first product writes or, where rows travel, reads too.
std::vector<Extent> extents_of(const GemmCall& up, const GemmCall& down, const TensorView& ready, bool travels) {
    std::vector<Extent> all;
    for (Extent extent : extents_of(up)) {
        if (extent.data == nullptr) continue;
        extent.exchanged = extent.data == up.d.data || extent.data == up.d_scales.data ||
                           (travels && (extent.data == up.a.data || extent.data == up.scales_a.data));
        extent.writable |= extent.exchanged;
        all.push_back(extent);
    }
    for (const Extent& extent : extents_of(down))
        if (extent.data != nullptr && extent.data != up.d.data && extent.data != up.d_scales.data)
            all.push_back(extent);
    all.push_back({ready.data(), ready.contiguous_bytes(), "ready", true, true});
    return all;
}

/// Both products' operands that are rows, with the results of the second one.
struct LayerRows {
    const TensorView& rows;
    const OptionalTensor& row_scales;
    const TensorView& out;
};

/// Checked as if there were memory for all rows and for results; the first product then reads those that there are.
class TravellingRows {
public:
    explicit TravellingRows(const MoeLayerOfRanksRecord& t)
        : t_(t),
          rows_(t.rows, t.rows.dtype(), all(t), t.rows.size(1), t.rows.stride(0), t.rows.stride(1)),
          scales_(*t.row_scales, t.row_scales->dtype(), all(t), t.row_scales->size(1), 1,
                  round_up(all(t), kScalesTogether)),
          out_(t.inner, {kDLBfloat, 16, 1}, all(t), columns(t), columns(t), 1) {}

    LayerRows shapes() const { return {row_view_, scale_view_, out_view_}; }

    const MoeLayerOfRanksRecord& record() const { return t_; }
    /// How many lie here at the same time.
    int64_t room() const { return t_.rows.size(0); }

    void place(GemmCall& up, GemmCall& down) const {
        up.a.data = t_.rows.data(), up.a.rows = room(), up.a.bytes = extent_bytes(t_.rows);
        up.a.normalise();
        Scales& s = up.scales_a;
        s.data = t_.row_scales->data(), s.rows = room(), s.k_stride = t_.row_scales->stride(1);
        s.bytes = extent_bytes(*t_.row_scales);
        down.d.data = t_.inner.data();  // for a map that nobody stores by
    }

private:
    static constexpr int64_t kScalesTogether = 4;  // 16 bytes, as a map's strides are

    /// Of a result.
    static int64_t columns(const MoeLayerOfRanksRecord& t) {
        if (t.down_packing) return (*t.down_packing)[1];
        require(t.down.ndim() == 3, "l2_weights must be [experts, N, K], got shape ", describe_shape(t.down));
        return t.down.size(1);
    }

    static int64_t all(const MoeLayerOfRanksRecord& t) {
        require(t.source.ndim() == 1, "source must be [rows], got shape ", describe_shape(t.source));
        require(t.rows.ndim() == 2 && t.rows.stride(1) == 1 && t.rows.stride(0) == t.rows.size(1) && t.row_scales &&
                    t.row_scales->ndim() == 2 && t.row_scales->size(0) == t.rows.size(0) &&
                    t.row_scales->stride(0) == 1 && t.row_scales->stride(1) % kScalesTogether == 0,
                "rows must be contiguous, and their scales lie as the product reads them");
        require(t.rows.size(0) <= t.source.size(0), "rows must be at most the ", t.source.size(0), " of source, got ",
                t.rows.size(0));
        return t.source.size(0);
    }

    const MoeLayerOfRanksRecord& t_;
    Shape rows_, scales_, out_;
    TensorView row_view_ = rows_.view(), out_view_ = out_.view();
    OptionalTensor scale_view_ = scales_.view();
};

void fill_travel(MoeLayerRanksParams& params, const MoeLayerOfRanksRecord& t, const GemmCall& up, const GemmConfig& c,
                 std::vector<Extent>& extents) {
    PullParams& p = params.travel;
    p.ranks = ranks_of(t, up.device, "rows", extents);
    require_type(is_int32(t.source.dtype()), "source must be int32, got ", describe(t.source.dtype()));
    require_device(t.source, "source", up.device, "rows");
    require(t.source.ndim() == 1 && t.source.size(0) == up.problem.m, "source must be [", up.problem.m, "], got shape ",
            describe_shape(t.source));
    p.source = reinterpret_cast<const int32_t*>(t.source.data());
    extents.push_back({t.source.data(), extent_bytes(t.source), "source", false});
    p.rows = up.problem.m, p.hidden = up.problem.k;
    p.first_token = to_int32(t.first_token, "first_token"), p.room = to_int32(t.room, "tokens");
    p.choices = to_int32(t.choices, "choices");
    p.out = reinterpret_cast<uint8_t*>(t.rows.data()), p.out_scales = reinterpret_cast<float*>(t.row_scales->data());
    p.out_s_row_stride = t.row_scales->stride(0), p.out_s_k_stride = t.row_scales->stride(1);
    params.pulled = check_counters(t.pulled, "pulled", up, up.a.rows);
    params.room_rows = to_int32(up.a.rows, "rows");
    require(params.room_rows % c.tile_m() == 0, "rows must be a multiple of ", c.tile_m(), ", got ", params.room_rows);
    extents.push_back({t.pulled.data(), t.pulled.contiguous_bytes(), "pulled", true, true});
}

/// `travelling`: rows of ranks; or null.
void run(const BothProductsRecord& t, const LayerRows& rows, const TravellingRows* travelling) {
    const bool travels = travelling != nullptr;
    const uint64_t generation = Generation::now();
    const LayerWeights l1{t.up,         t.up_scales,  t.up_second_scales,  t.up_zeros,
                          t.up_packing, "l1_weights", "l1_weights' scales"};
    const LayerWeights l2{t.down,         t.down_scales, t.down_second_scales, t.down_zeros,
                          t.down_packing, "l2_weights",  "l2_weights' scales"};
    Product up = check({.data = rows.rows, .scales = rows.row_scales, .name = "rows", .scales_name = "rows' scales"},
                       l1.operand(), {t.inner, t.inner_scales}, t.ends, t.expected_m, t.gate);
    check_row_scale(up.call, t.row_weights, t.inner, last_axes(false));
    Product down = check({.data = t.inner, .scales = t.inner_scales, .name = "inner", .scales_name = "inner's scales"},
                         l2.operand(), {rows.out}, t.ends, t.expected_m, std::nullopt);
    uint32_t* const ready = check_counters(t.ready, "ready", up.call, up.call.problem.m);
    const Problem &first = up.call.problem, &second = down.call.problem;
    require(first.arch == Arch::sm90, "a layer in one launch must be on a GPU of SM90, got ", facts(first.arch).name);
    require(first.quantises_gates() && second.k == first.n / 2 && second.m == first.m,
            "inner must be what the first product writes and the second one reads");
    check_counts(up.call);
    if (first.m == 0 || first.num_groups == 0) return;

    Device& device = *up.call.runs_on;
    for (Product* product : {&up, &down})
        CallSettings::of(product->call.device).apply(product->call.problem, device.facts());
    LayerPlan plan = plan_of(device, first, second, travels, generation);
    void* const stream = current_stream(up.call.device);
    prepare(up, device, stream), prepare(down, device, stream);
    if (travels) {
        travelling->place(up.call, down.call);
        // Rows of the next strip come while one is multiplied; of more than there is room for, none would (PulledRows).
        int32_t& strip = plan.up.choice.raster_group_blocks;
        const auto places = static_cast<int32_t>(travelling->room() / plan.up.choice.config.tile_m());
        strip = std::min(strip, std::max(places / 2, 1));
    }
    MoeLayerRanksParams params{};
    fill_all_params(params.up, device, up.call, plan.up);
    fill_all_params(params.down, device, down.call, plan.down);
    const GemmConfig &c = plan.up.choice.config, &d = plan.down.choice.config;
    params.down.up_blocks = ceil_div(first.n, c.super_tile_n());
    params.down.head_start =
        std::max(1, ceil_div(first.k, c.tile.k) * c.tile_n() / (ceil_div(second.k, d.tile.k) * d.tile_n()));
    params.ready = ready;
    std::vector<Extent> extents = extents_of(up.call, down.call, t.ready, travels);
    if (travels) fill_travel(params, travelling->record(), up.call, c, extents);
    device.launch(*plan.kernel, plan.shape, &params, travels ? sizeof(MoeLayerRanksParams) : sizeof(MoeLayerParams),
                  stream, extents);
}

}  // namespace

void run_moe_layer(const MoeLayerRecord& record) { run(record, {record.rows, record.row_scales, record.out}, nullptr); }

void run_moe_layer(const MoeLayerOfRanksRecord& record) {
    const TravellingRows rows(record);
    run(record, rows.shapes(), &rows);
}

}  // namespace deep_gemm
