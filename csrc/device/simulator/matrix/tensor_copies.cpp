// tcgen05.cp from shared to tensor memory, and tcgen05.commit.
#include <cstring>

#include "../../../util/require.hpp"
#include "matrix_unit.hpp"
#include "tensor_memory.hpp"
#include "tensor_products.hpp"

namespace deep_gemm::simulator {

namespace {

struct CopyTarget {
    uint32_t lane, first_row;  // rows from this one on go to lanes from this one on
};

/// So many rows of 16-byte chunks go to each of several places.
struct CopyShape {
    std::string_view name, warps;
    uint32_t chunks, rows_a_place;
    std::vector<CopyTarget> places;
};

const std::vector<CopyShape>& copy_shapes() {
    static const std::vector<CopyShape> shapes = {
        {"128x256b", "", 2, 128, {{0, 0}}},
        {"128x128b", "", 1, 128, {{0, 0}}},
        {"64x128b", "warpx2::02_13", 1, 32, {{0, 0}, {64, 0}, {32, 32}, {96, 32}}},
        {"64x128b", "warpx2::01_23", 1, 32, {{0, 0}, {32, 0}, {64, 32}, {96, 32}}},
        {"32x128b", "warpx4", 1, 32, {{0, 0}, {32, 0}, {64, 0}, {96, 0}}},
        {"4x256b", "", 2, 1, {{0, 0}, {32, 1}, {64, 2}, {96, 3}}},
    };
    return shapes;
}

constexpr uint32_t kPair = 1, kMulticast = 2;
constexpr unsigned kShapeOf = 4;

void copy_now(Cta& cta, const AsyncAccess& reading, const TensorAccess& writing, const OperandLayout& layout,
              TensorPlace to, const CopyShape& shape) {
    TensorMemory& memory = tensor_memory(cta);
    for (const CopyTarget& place : shape.places) {
        const uint32_t lane = to.lane + place.lane, columns = 4 * shape.chunks;
        tensor_write(writing, cta, {lane, shape.rows_a_place, to.column, columns});
        for (uint32_t row = 0; row < shape.rows_a_place; ++row)
            for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
                const uint32_t address = chunk_address(layout, place.first_row + row, chunk);
                if (address < kReservedShared || address + 16 > cta.shared.size()) {
                    report(*cta.cluster, "out of bounds",
                           concat("tcgen05.cp reads shared memory ", hex(address), ", outside of block ", cta.rank),
                           reading.warp, reading.instruction);
                    return;
                }
                async_read(reading, cta, address, 16);
                for (uint32_t word = 0; word < 4; ++word) {
                    const uint32_t column = to.column + 4 * chunk + word;
                    std::memcpy(&memory.cell(lane + row, column), cta.shared.data() + address + 4 * word, 4);
                    memory.good(lane + row, column) = initialised(cta, address + 4 * word, 4);
                }
            }
    }
}

bool areas_allocated(const TensorAccess& access, Cta& cta, TensorPlace to, const CopyShape& shape) {
    for (const CopyTarget& place : shape.places)
        if (!check_area(access, cta, {to.lane + place.lane, shape.rows_a_place, to.column, 4 * shape.chunks}))
            return false;
    return true;
}

Step copy(Warp& w, const Instruction& in, uint32_t lanes) {
    const CopyShape& shape = copy_shapes()[in.flags >> kShapeOf];
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        TensorWork& work = tensor_work(w);
        const TensorPlace to = tensor_place(uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)));
        OperandLayout layout;
        if (!tensor_layout(w, w.row<uint64_t>(in.b)[lane], layout)) continue;
        const auto ctas = group_ctas(w, in.flags & kPair);
        const TensorAccess access = tensor_access(w, in, 1u << lane, work.copies, count_issued(w, lane), "tcgen05.cp");
        tick(w);  // what the warp does from here on may overtake it
        bool good = !ctas.empty();
        for (Cta* cta : ctas) good = good && areas_allocated(access, *cta, to, shape);
        if (!good) continue;
        for (Cta* cta : ctas) cta->tensor_users[access.agent] = access.tick;
        queue_tensor_work(w, in, "tcgen05.cp", [=, &shape] {
            AsyncAccess reading{access.cluster,     &access.at,  access.agent, access.tick,
                                access.instruction, access.warp, "tcgen05.cp", uint8_t(layout.swizzle)};
            for (Cta* cta : ctas) copy_now(*cta, reading, access, layout, to, shape);
        });
    }
    return Step::next;
}

void arrive_at(Warp& w, const Instruction& in, Cta& cta, uint32_t offset, const Clock& known) {
    if (cta.exited)
        report(*w.cluster, "early exit", concat("tcgen05.commit arrives in block ", cta.rank, ", which has exited"), &w,
               &in);
    Mbarrier* barrier = cta.find_mbarrier(offset);
    if (!barrier)
        return report(*w.cluster, "barrier reuse", "the mbarrier of a tcgen05.commit is gone before it arrives", &w,
                      &in);
    arrive(*w.cluster, cta, *barrier, 1, &known, &w, &in);
}

Step commit(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        TensorWork& work = tensor_work(w);
        const Place place =
            shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), 8, false, "tcgen05.commit");
        if (!place.cta) continue;
        const uint32_t mask =
            in.flags & kMulticast ? uint32_t(read_any(w, in.c, lane)) & 0xffff : 1u << place.cta->rank;
        if (mask == 0 || mask >> cluster.ctas.size())
            report(cluster, "cluster",
                   concat("multicast mask ", hex(mask), " names blocks that a cluster of ", cluster.ctas.size(),
                          " does not have"),
                   &w);
        Clock known = *view_of(w, lane).clock;
        for (unsigned own = 0; own < kLanes; ++own)  // it releases none of the warp's own accesses
            if (w.agent + own < known.seen.size()) known.seen[w.agent + own] = 0;
        known.set(work.products, work.issued_by[lane]);
        known.set(work.copies, work.issued_by[lane]);
        // The manual names the thread's own operations only; what its products stood behind is complete when they are.
        if (cluster.by_hardware())
            for (const auto& [other, tick] : work.executed_behind)
                known.set(other->copies, tick), known.set(other->products, tick);
        Warp* warp = &w;
        for (auto& cta : cluster.ctas)
            if (mask >> cta->rank & 1) barrier_at(cluster, *cta, place.offset, view_of(w, lane), &w, nullptr, true);
        queue_tensor_work(w, in, "tcgen05.commit", [=, &cluster, &in, known = std::move(known)] {
            for (auto& cta : cluster.ctas)
                if (mask >> cta->rank & 1) arrive_at(*warp, in, *cta, place.offset, known);
        });
    }
    return Step::next;
}

}  // namespace

void decode_tensor_cp(Decoder& decoder) {
    Instruction& out = decoder.out;
    const bool pair = take_pair(decoder);
    const auto& shapes = copy_shapes();
    unsigned shape = 0;
    const auto is_this = [&] {
        const auto& [name, warps, chunks, rows, places] = shapes[shape];
        return decoder.has(name) && (warps.empty() || decoder.has(warps));
    };
    while (shape < shapes.size() && !is_this()) ++shape;
    if (shape == shapes.size()) decoder.error("tcgen05.cp has no such shape");
    decoder.mod(shapes[shape].name);
    decoder.mod(shapes[shape].warps);
    out.flags = (pair ? kPair : 0) | shape << kShapeOf;
    out.a = decoder.address(decoder.node(0), out.displacement);
    out.b = decoder.source(1, Type::b64);
    decoder.set(copy);
}

void decode_tensor_commit(Decoder& decoder) {
    Instruction& out = decoder.out;
    take_pair(decoder);
    if (!decoder.mod("mbarrier::arrive::one")) decoder.error(".mbarrier::arrive::one expected");
    decoder.one_of({"shared::cluster"});
    out.flags = decoder.mod("multicast::cluster") ? kMulticast : 0;
    if (!decoder.mod("b64")) decoder.error(".b64 expected");
    out.a = decoder.address(decoder.node(0), out.displacement);
    if (out.flags & kMulticast) out.c = decoder.source(1, Type::u16);
    decoder.set(commit);
}

}  // namespace deep_gemm::simulator
