// Decoding of the copy instructions.
#include "../../../util/require.hpp"
#include "copy_engine.hpp"

namespace deep_gemm::simulator {

void decode_barrier_operand(Decoder& decoder, size_t operand) {
    int64_t displacement;
    decoder.out.x = decoder.address(decoder.node(operand), displacement);
    decoder.extra().values[0] = int(displacement);
}

namespace {

void decode_coordinates(Decoder& decoder, const Node& node) {
    if (node.kind != Node::Kind::address || node.children.size() != 2 || node.children[1].kind != Node::Kind::vector)
        decoder.error("[tensor map, {coordinates}] expected");
    decoder.out.b = decoder.address(node, decoder.out.displacement2);
    for (const Node& child : node.children[1].children) decoder.extra().c.push_back(decoder.source(child, Type::s32));
    const uint32_t rank = decoder.out.flags >> kRankOf & 15;
    if (decoder.out.flags & kFourRows && rank != 2) decoder.error("four rows are of a tensor of rank 2");
    if (decoder.extra().c.size() != (decoder.out.flags & kFourRows ? 5 : rank))
        decoder.error(decoder.out.flags & kFourRows ? "four rows need five coordinates: the column, and each row's"
                                                    : "the number of coordinates is not the rank");
}

void take_operation(Decoder& decoder, uint32_t& flags) {
    static const std::string_view kNames[] = {"add", "min", "max", "inc", "dec", "", "", "and", "or", "xor"};
    for (uint32_t i = 0; i < 10; ++i)
        if (!kNames[i].empty() && decoder.mod(kNames[i])) {
            flags |= i << kOperationOf;
            return;
        }
    decoder.error("no reduction operation");
}

// Which of the spaces stands first is the destination.
void take_spaces(Decoder& decoder, uint32_t& flags) {
    bool first = true;
    for (const auto name : decoder.rest()) {
        const bool shared = name == "shared::cluster" || name == "shared::cta";
        if (!shared && name != "global") continue;
        decoder.mod(name);
        if (first && shared) flags |= kToShared | (name == "shared::cta" ? uint32_t(kOwnDestination) : 0u);
        if (!first && shared) flags |= kFromShared;
        first = false;
    }
}

/// Which box the L2 is asked for; of plain ranges nothing is kept.
void decode_bulk_prefetch(Decoder& decoder) {
    const bool tensor = decoder.mod("tensor");
    const auto dimension = decoder.one_of({"1d", "2d", "3d", "4d", "5d"});
    const uint32_t four_rows = decoder.mod("tile::gather4") ? uint32_t(kFourRows) : 0u;
    decoder.consume_rest();
    if (!tensor) {
        for (size_t i = 0; i < decoder.count(); ++i) decoder.node(i);
        return decoder.set(nothing);
    }
    if (dimension.empty()) decoder.error("no dimension");
    decoder.out.flags = kTensor | four_rows | uint32_t(dimension[0] - '0') << kRankOf;
    decode_coordinates(decoder, decoder.node(0));
    for (size_t i = 1; i < decoder.count(); ++i) decoder.source(i, Type::b64);
    decoder.set(tensor_prefetch);
}

void decode_bulk(Decoder& decoder, bool reduce) {
    Instruction& out = decoder.out;
    if (decoder.mod("commit_group")) return decoder.set(commit_group);
    if (decoder.mod("wait_group")) {
        out.flags = decoder.mod("read") ? kReadOnly : 0;
        out.displacement = decoder.constant(0);
        return decoder.set(wait_group);
    }
    if (decoder.mod("prefetch")) return decode_bulk_prefetch(decoder);
    uint32_t flags = reduce ? uint32_t(kReduce) : 0u;
    const bool tensor = decoder.mod("tensor");
    const bool hint = decoder.mod("L2::cache_hint");
    if (decoder.mod("multicast::cluster")) flags |= kMulticast;
    if (decoder.mod("mbarrier::complete_tx::bytes")) flags |= kWithBarrier;
    if (decoder.mod("bulk_group") == bool(flags & kWithBarrier)) decoder.error("one completion mechanism expected");
    if (reduce) take_operation(decoder, flags);
    take_spaces(decoder, flags);
    if (decoder.one_of({"cta_group::1", "cta_group::2"}) == "cta_group::2") flags |= kPairBarrier;
    decoder.ignore({"tile", "noftz"});
    size_t next = 0;
    if (tensor) {
        const auto dimension = decoder.one_of({"1d", "2d", "3d", "4d", "5d"});
        if (dimension.empty()) decoder.error("no dimension");
        flags |= kTensor | uint32_t(dimension[0] - '0') << kRankOf;
        if (!reduce && decoder.mod(flags & kFromShared ? "tile::scatter4" : "tile::gather4")) flags |= kFourRows;
        out.flags = flags;
        if (flags & kFromShared) {
            decode_coordinates(decoder, decoder.node(next++));
            out.a = decoder.address(decoder.node(next++), out.displacement);
        } else {
            out.a = decoder.address(decoder.node(next++), out.displacement);
            decode_coordinates(decoder, decoder.node(next++));
            decode_barrier_operand(decoder, next++);
        }
        if (flags & kMulticast) out.c = decoder.source(next++, Type::u16);
        decoder.set(tensor_copy);
    } else {
        if (reduce) flags |= uint32_t(decoder.need_type()) << kTypeOf;
        out.flags = flags;
        out.a = decoder.address(decoder.node(next++), out.displacement);
        out.b = decoder.address(decoder.node(next++), out.displacement2);
        out.d = decoder.source(next++, Type::u32);
        decoder.extra();
        if (flags & kWithBarrier) decode_barrier_operand(decoder, next++);
        if (flags & kMulticast) out.c = decoder.source(next++, Type::u16);
        decoder.set(linear_copy);
    }
    if (hint) decoder.source(next++, Type::b64);
}

void decode_cp(Decoder& decoder) {
    const bool reduce = decoder.mod("reduce");
    if (!decoder.mod("async")) decoder.error("cp.async expected");
    if (decoder.mod("bulk")) return decode_bulk(decoder, reduce);
    decode_small_copy(decoder);
}

}  // namespace

void decode_st_async(Decoder& decoder) {
    decoder.ignore({"async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes"});
    decoder.one_of({"v2", "v4"});
    const Type type = decoder.need_type();
    decoder.out.flags = type_bytes(type);
    decoder.out.a = decoder.address(decoder.node(0), decoder.out.displacement);
    decoder.extra().b = decoder.sources(decoder.node(1), type);
    decode_barrier_operand(decoder, 2);
    decoder.set(store_async);
}

void add_bulk(DecodeTable& table) {
    table["cp"] = decode_cp;
    table["clusterlaunchcontrol"] = decode_cluster_control;
}

}  // namespace deep_gemm::simulator
