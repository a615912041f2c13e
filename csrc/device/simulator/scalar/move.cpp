// mov with packing and unpacking, cvta, isspacep, mapa, and the special registers that change while running.
#include <chrono>

#include "../core/execute.hpp"

namespace deep_gemm::simulator {

namespace {

template <class T>
Step copy(Warp& w, const Instruction& in, uint32_t lanes) {
    auto* d = w.row<T>(in.d);
    const auto* a = w.row<T>(in.a);
    for_lanes(lanes, [&](unsigned i) { d[i] = a[i]; });
    return Step::next;
}
struct Wide128 {
    uint64_t low, high;
};

Step copy_predicate(Warp& w, const Instruction& in, uint32_t lanes) {
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | (w.predicate(in.a) & lanes);
    return Step::next;
}

// mov.b64 %rd, {%r1, %r2}: `displacement` is the bits of one part.
Step pack(Warp& w, const Instruction& in, uint32_t lanes) {
    const unsigned bits = unsigned(in.displacement);
    const auto& parts = in.extra->a;
    for_lanes(lanes, [&](unsigned i) {
        if (in.d.bytes == 16) {
            uint64_t words[2] = {0, 0};
            for (size_t p = 0; p < parts.size(); ++p)
                words[p * bits / 64] |=
                    (read_any(w, parts[p], i) & (bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1))
                    << (p * bits % 64);
            w.row<Wide128>(in.d)[i] = {words[0], words[1]};
            return;
        }
        uint64_t value = 0;
        for (size_t p = 0; p < parts.size(); ++p)
            value |= (read_any(w, parts[p], i) & ((uint64_t(1) << bits) - 1)) << (p * bits);
        write_any(w, in.d, i, value);
    });
    return Step::next;
}

Step unpack(Warp& w, const Instruction& in, uint32_t lanes) {
    const unsigned bits = unsigned(in.displacement);
    const auto& parts = in.extra->d;
    for_lanes(lanes, [&](unsigned i) {
        uint64_t words[2] = {0, 0};
        if (in.a.bytes == 16)
            words[0] = w.row<Wide128>(in.a)[i].low, words[1] = w.row<Wide128>(in.a)[i].high;
        else
            words[0] = read_any(w, in.a, i);
        for (size_t p = 0; p < parts.size(); ++p) {
            const uint64_t value = words[p * bits / 64] >> (p * bits % 64);
            write_any(w, parts[p], i, bits == 64 ? value : value & ((uint64_t(1) << bits) - 1));
        }
    });
    return Step::next;
}

Step read_clock(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto special = Special(in.flags);
    uint64_t value = w.cluster->time;
    if (special == Special::clock_hi) value >>= 32;
    if (special == Special::globaltimer || special == Special::globaltimer_lo || special == Special::globaltimer_hi) {
        value = uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now()
                                                                                  .time_since_epoch())
                             .count());
        if (special == Special::globaltimer_hi) value >>= 32;
    }
    for_lanes(lanes, [&](unsigned i) { write_any(w, in.d, i, value); });
    return Step::next;
}

void decode_mov(Decoder& decoder) {
    const Type type = decoder.need_type();
    Instruction& out = decoder.out;
    out.is_move = true;
    if (type == Type::pred) {
        out.d = decoder.predicate_dest(decoder.node(0));
        out.a = decoder.predicate(1);
        return decoder.set(copy_predicate);
    }
    const unsigned bits = type_bytes(type) * 8;
    if (decoder.is_vector(0)) {
        const Node& parts = decoder.node(0);
        out.displacement = bits / parts.children.size();
        for (const Node& part : parts.children) {
            const bool skipped = part.name == "_";
            decoder.extra().d.push_back(decoder.dest_any(part, skipped
                                                                   ? 8
                                                                   : std::max<unsigned>(4, bits / 8 /
                                                                                               parts.children.size())));
        }
        out.a = decoder.source(1, type);
        return decoder.set(unpack);
    }
    if (decoder.is_vector(1)) {
        const Node& parts = decoder.node(1);
        out.displacement = bits / parts.children.size();
        for (const Node& part : parts.children)
            decoder.extra().a.push_back(decoder.source_any(part,
                                                           std::max<unsigned>(4, bits / 8 / parts.children.size())));
        out.d = decoder.dest(0, type);
        return decoder.set(pack);
    }
    const Node& source = decoder.node(1);
    const Special special = source.kind == Node::Kind::name ? Special(0) : Special::unknown;
    out.d = decoder.dest(0, type);
    if (special != Special::unknown && source.name[0] == '%') {
        static const std::pair<std::string_view, Special> kChanging[] = {{"%clock", Special::clock},
                                                                         {"%clock64", Special::clock64},
                                                                         {"%clock_hi", Special::clock_hi},
                                                                         {"%globaltimer", Special::globaltimer},
                                                                         {"%globaltimer_lo", Special::globaltimer_lo},
                                                                         {"%globaltimer_hi", Special::globaltimer_hi}};
        for (const auto& [name, which] : kChanging)
            if (source.name == name) {
                out.flags = uint32_t(which);
                return decoder.set(read_clock);
            }
    }
    out.a = decoder.source(source, type);
    const unsigned bytes = out.d.bytes;
    decoder.set(bytes == 16 ? copy<Wide128> : bytes == 8 ? copy<uint64_t> : copy<uint32_t>);
}

// Generic addresses: global and parameter memory are host pointers, shared and local memory have windows.
enum : uint32_t { kToSpace = 1, kShared = 2, kLocal = 4, kParam = 8 };
Step cvta(Warp& w, const Instruction& in, uint32_t lanes) {
    uint64_t window = 0;
    if (in.flags & kShared) window = kSharedWindow;
    if (in.flags & kLocal) window = kLocalWindow;
    if (in.flags & kParam) window = reinterpret_cast<uint64_t>(w.cluster->launch->params);
    if (in.flags & kToSpace) window = 0 - window;
    for_lanes(lanes, [&](unsigned i) { write_any(w, in.d, i, read_any(w, in.a, i) + window); });
    return Step::next;
}
void decode_cvta(Decoder& decoder) {
    if (decoder.mod("to")) decoder.out.flags |= kToSpace;
    const auto space = decoder.one_of({"shared", "shared::cta", "shared::cluster", "local", "param", "param::entry",
                                       "global", "const"});
    if (space.empty()) decoder.error("no state space");
    if (space.starts_with("shared")) decoder.out.flags |= kShared;
    if (space == "local") decoder.out.flags |= kLocal;
    if (space.starts_with("param")) decoder.out.flags |= kParam;
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.set(cvta);
}

Step isspacep(Warp& w, const Instruction& in, uint32_t lanes) {
    uint32_t yes = 0;
    const auto* params = w.cluster->launch->params;
    for_lanes(lanes, [&](unsigned i) {
        const uint64_t address = w.row<uint64_t>(in.a)[i], window = address & kWindowMask;
        bool is = false;
        if (in.flags & kShared)
            is = window == kSharedWindow && (in.flags & 16 || (uint32_t(address) >> kRankShift) == w.cta->rank);
        else if (in.flags & kLocal)
            is = window == kLocalWindow;
        else if (in.flags & kParam)
            is = address - reinterpret_cast<uint64_t>(params) < w.entry->param_bytes;
        else
            is = window != kSharedWindow && window != kLocalWindow;
        yes |= uint32_t(is) << i;
    });
    w.mask(in.d) = (w.mask(in.d) & ~lanes) | yes;
    return Step::next;
}
void decode_isspacep(Decoder& decoder) {
    const auto space = decoder.one_of({"shared::cluster", "shared::cta", "shared", "local", "param", "param::entry",
                                       "global", "const"});
    decoder.out.flags = space == "shared::cluster"    ? kShared | 16u
                        : space.starts_with("shared") ? kShared + 0u
                        : space == "local"            ? kLocal + 0u
                        : space.starts_with("param")  ? kParam + 0u
                                                      : 0u;
    decoder.out.d = decoder.predicate_dest(decoder.node(0));
    decoder.out.a = decoder.source(1, Type::u64);
    decoder.set(isspacep);
}

// mapa: the same offset in the shared memory of another block of the cluster. Of one that does not exist, too: CUTLASS
// asks for all 32 and uses those that are there. Who uses another is reported.
Step mapa(Warp& w, const Instruction& in, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned i = std::countr_zero(left);
        const uint64_t address = read_any(w, in.a, i) + uint64_t(in.displacement);
        const uint32_t rank = w.row<uint32_t>(in.b)[i];
        write_any(w, in.d, i, (address & ~(uint64_t(0xff) << kRankShift)) | uint64_t(rank & 0xff) << kRankShift);
    }
    return Step::next;
}
void decode_mapa(Decoder& decoder) {
    decoder.one_of({"shared::cluster"});
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, type);
    Node source = decoder.node(1);
    decoder.out.a = decoder.source(source, type);
    decoder.out.b = decoder.source(2, Type::u32);
    decoder.set(mapa);
}
Step getctarank(Warp& w, const Instruction& in, uint32_t lanes) {
    for_lanes(lanes, [&](unsigned i) { w.row<uint32_t>(in.d)[i] = uint32_t(read_any(w, in.a, i)) >> kRankShift; });
    return Step::next;
}
void decode_getctarank(Decoder& decoder) {
    decoder.one_of({"shared::cluster"});
    const Type type = decoder.need_type();
    decoder.out.d = decoder.dest(0, Type::u32);
    decoder.out.a = decoder.source(1, type);
    decoder.set(getctarank);
}

}  // namespace

void add_move(DecodeTable& table) {
    table["mov"] = decode_mov;
    table["cvta"] = decode_cvta;
    table["isspacep"] = decode_isspacep;
    table["mapa"] = decode_mapa;
    table["getctarank"] = decode_getctarank;
}

}  // namespace deep_gemm::simulator
