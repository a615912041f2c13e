// clusterlaunchcontrol: a cluster takes over the work of one that has not begun.
#include <cstring>

#include "../../../util/require.hpp"
#include "../core/dice.hpp"
#include "copy_engine.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kTaken = 1, kAnswerBytes = 16;
constexpr uint32_t kToAll = 1;  // flag: every block of the cluster gets the answer

/// The 16 bytes, which are opaque to a kernel: the first block's place in the grid, and whether there is one.
struct Answer {
    uint32_t first_block[3] = {}, taken = 0;
};
static_assert(sizeof(Answer) == kAnswerBytes);

Answer answer_of(const Warp& w, const Operand& operand, unsigned lane) {
    Answer answer;
    std::memcpy(&answer, w.row<char>(operand) + lane * kAnswerBytes, kAnswerBytes);
    return answer;
}

/// On a machine a request may fail though clusters are left; in the random schedule some do.
Answer take_over(Cluster& cluster) {
    LaunchState& launch = *cluster.launch;
    if (launch.options.schedule == Schedule::random && cluster.dice->next() % 4 == 0) return {};
    const uint32_t index = launch.next_cluster++;
    if (index >= launch.clusters) return {};
    Answer answer;
    answer.taken = kTaken;
    find_first_block(launch, index, answer.first_block);
    return answer;
}

Step try_cancel(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place = shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), kAnswerBytes,
                                         true, "clusterlaunchcontrol");
        Place barrier;
        if (!place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
        if (place.offset % kAnswerBytes) {
            report(*w.cluster, "misaligned",
                   concat("clusterlaunchcontrol writes 16 bytes to ", hex(place.offset),
                          ", which is no multiple of 16"),
                   &w);
            continue;
        }
        const Answer answer = take_over(*w.cluster);
        for (auto& cta : w.cluster->ctas) {
            if (!(in.flags & kToAll) && cta.get() != place.cta) continue;
            defer_arrival(w, in, lane, *cta, place.offset, kAnswerBytes, kAnswerBytes, *cta, barrier.offset,
                          "clusterlaunchcontrol", [answer](Cta& target, uint32_t destination) {
                              std::memcpy(target.shared.data() + destination, &answer, kAnswerBytes);
                          });
        }
    }
    return Step::next;
}

Step is_canceled(Warp& w, const Instruction& in, uint32_t lanes) {
    uint32_t taken = 0;
    for_lanes(lanes, [&](unsigned i) { taken |= uint32_t(answer_of(w, in.a, i).taken == kTaken) << i; });
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | taken;
    return Step::next;
}

/// Coordinates from `displacement` on; of an answer without a cluster they are undefined.
Step first_block(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto& targets = in.extra->d;
    bool none = false;
    for_lanes(lanes, [&](unsigned i) {
        const Answer answer = answer_of(w, in.a, i);
        none |= answer.taken != kTaken;
        for (size_t t = 0; t < targets.size(); ++t) {
            const size_t coordinate = size_t(in.displacement) + t;
            w.row<uint32_t>(targets[t])[i] = coordinate < 3 ? answer.first_block[coordinate] : 0;
        }
    });
    if (none)
        report(*w.cluster, "cluster", "get_first_ctaid of a request that has not been granted: is_canceled says so",
               &w);
    return Step::next;
}

void decode_query(Decoder& decoder) {
    Instruction& out = decoder.out;
    if (decoder.mod("is_canceled")) {
        if (!decoder.mod("pred")) decoder.error(".pred expected");
        out.d = decoder.predicate_dest(decoder.node(0));
        decoder.set(is_canceled);
    } else {
        const auto one = decoder.one_of({"get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"});
        const bool all = one.empty() && decoder.mod("get_first_ctaid") && decoder.mod("v4");
        if ((one.empty() && !all) || !decoder.mod("b32")) decoder.error("is_canceled or get_first_ctaid expected");
        out.displacement = one.empty() ? 0 : one.back() - 'x';
        decoder.extra().d =
            all ? decoder.dests(decoder.node(0), Type::b32) : std::vector<Operand>{decoder.dest(0, Type::b32)};
        if (all && decoder.out.extra->d.size() != 4) decoder.error("get_first_ctaid.v4 gives four registers");
        decoder.set(first_block);
    }
    if (!decoder.mod("b128")) decoder.error(".b128 expected");
    out.a = decoder.source(1, Type::b128);
}

}  // namespace

void find_first_block(const LaunchState& launch, uint32_t cluster, uint32_t (&block)[3]) {
    for (int i = 0; i < 3; ++i) {
        const uint32_t count = launch.launch->grid[i] / launch.cluster_shape[i];
        block[i] = cluster % count * launch.cluster_shape[i];
        cluster /= count;
    }
}

void decode_cluster_control(Decoder& decoder) {
    if (decoder.mod("query_cancel")) return decode_query(decoder);
    if (!decoder.mod("try_cancel") || !decoder.mod("async") || !decoder.mod("mbarrier::complete_tx::bytes") ||
        !decoder.mod("b128"))
        decoder.error("try_cancel.async on an mbarrier, or query_cancel expected");
    decoder.mod("shared::cta");
    decoder.out.flags = decoder.mod("multicast::cluster::all") ? kToAll : 0;
    decoder.out.a = decoder.address(decoder.node(0), decoder.out.displacement);
    decode_barrier_operand(decoder, 1);
    decoder.set(try_cancel);
}

}  // namespace deep_gemm::simulator
