#include "checks_gate.hpp"

#include <bit>

#include "../../config/candidate.hpp"
#include "../../config/host_facts.hpp"
#include "../../config/quantised.hpp"

namespace deep_gemm {

void check_gate(GemmCall& call, const GateRecord& gate) {
    if (!gate) return;
    require(gate->size() == 5, "a gate is given as five numbers");
    const auto number = [&](int64_t i) { return std::bit_cast<float>(static_cast<uint32_t>((*gate)[i])); };
    Problem& p = call.problem;
    p.gate = {.kind = value_at<GateKind>((*gate)[0], "the gate"), .rows = value_at<GateRows>((*gate)[1], "its rows")};
    call.gate = {.limit = number(2), .alpha = number(3), .up_shift = number(4)};
    require(p.n % 2 == 0, "b must have N even for a gated activation: N/2 gates and as many ups, got N=", p.n);
    p.gate.partial = p.n / 2 % kGateCols;
    require(!p.gate.partial || p.gate.joins(),
            "b must have N a multiple of 16 where its rows are 8 gates and 8 ups in "
            "turn, as packed weights and layout='eights' have them, got N=",
            p.n);
}

void require_gate_is_served(const Problem& p) {
    if (!p.gate.any()) return;
    require(
        !p.b.packed() || !p.gate.joins(),
        "w must be packed weights for a gated activation, made by pack_weights with gate_up: a call that packs weights "
        "itself, as this one does on ",
        name(p.arch), ", leaves their rows where they are");
    require(p.output != Element::s32, "d must not be int32 for a gated activation");
    require(!has_long_runs(p) || !p.b.packed() || ceil_div(p.n, kPackedRowsPadded) % 2 == 0,
            "w must have N of an even number of blocks of ", kPackedRowsPadded,
            " rows where d is a pair with a scale for 128 columns behind a gated activation, got N=", p.n,
            ": use deep_gemm.quantize.swiglu_fp8 behind the product");
    require(!p.heads.any(), "epilogue must have no gated activation where D is written in heads");
    require(
        !p.b.mn_major(),
        "b must have K contiguous for a gated activation, as functions whose names end with nt take it, and einsums "
        "of 'bhr,hdr->bhd'");
    const bool eights = p.gate.rows == GateRows::eights, groups_of_k = p.b.scaling.any() && p.b.scaling.k != kAll;
    constexpr const char* kWanted = "the gated activation's layout must be 'halves' or 'interleaved' where b ";
    require(!eights || !p.b.packed(), kWanted, "is packed, got 'eights'");
    require(!eights || !groups_of_k || host_facts(p.arch).scales_eights, kWanted, "has scales of groups of K on ",
            name(p.arch), ", got 'eights'");
    require(!p.b.scaling.per_block() || !p.gate.blocks_in_halves() || p.n / 2 % kScaleBlockRows == 0,
            "b must have N/2 a multiple of ", kScaleBlockRows,
            " where gates and ups are halves of B, or lie 8 by 8, with scales of 128 x 128 blocks, got N=", p.n,
            ": no block may have rows of both");
}

}  // namespace deep_gemm
