// tcgen05.ld and st between registers and tensor memory, their waits, and the fences of tcgen05.
#include "../../../util/require.hpp"
#include "tensor_memory.hpp"

namespace deep_gemm::simulator {

namespace {

enum class Shape : uint32_t { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };
constexpr std::string_view kShapes[] = {"32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"};
constexpr uint32_t kPacked = 16;  // flag beside the shape: 16 bits a column

// Of a lane's register: the lane of tensor memory, counted from the address, and the column.
TensorPlace element_place(Shape shape, unsigned l, unsigned r, uint32_t second_half) {
    switch (shape) {
        case Shape::s16x64b:
            return {l / 4 + 8 * (l % 2), l / 2 % 2 + 2 * r};
        case Shape::s16x128b:
            return {l / 4 + 8 * (r % 2), l % 4 + 4 * (r / 2)};
        case Shape::s16x256b:
            return {l / 4 + 8 * (r / 2 % 2), r % 2 + 2 * (l % 4) + 8 * (r / 4)};
        case Shape::s16x32bx2:
            return {l % 16, r + (l / 16) * second_half};
        default:
            return {l, r};
    }
}

unsigned lanes_of(Shape shape) { return shape == Shape::s32x32b ? 32 : 16; }

unsigned columns_of(Shape shape, unsigned registers) {
    constexpr unsigned kPerRegister[] = {2, 4, 4, 4, 2};  // in halves of a column
    return registers * kPerRegister[unsigned(shape)] / 2;
}

/// What one instruction of a warp moves.
struct Move {
    Shape shape;
    bool packed;
    uint32_t second_half;
    TensorPlace at;
    std::vector<TensorArea> areas;
};

// Warp w of four reaches lanes 32 w and up only.
bool find_lanes(Warp& w, const char* what, Move& move) {
    const uint32_t first = 32 * (w.index % 4), wanted = move.at.lane;
    if (wanted >= first && wanted + lanes_of(move.shape) <= first + 32 && wanted % 16 == 0) return true;
    if (wanted < 32 && w.cluster->by_hardware()) {  // the warp's own quarter is meant
        move.at.lane += first;
        return true;
    }
    report(*w.cluster, "tensor memory",
           concat(what, " of ", describe_warp(w), " at lane ", wanted, ": this warp reaches lanes ", first, " to ",
                  first + 31, " only"),
           &w);
    if (wanted >= 32) return false;
    move.at.lane += first;
    return true;
}

Move make_move(Warp& w, const Instruction& in, uint32_t address, size_t registers) {
    Move move;
    move.shape = Shape(in.flags & 15);
    move.packed = in.flags & kPacked;
    move.second_half = uint32_t(in.displacement2);
    move.at = tensor_place(address);
    const unsigned columns = columns_of(move.shape, unsigned(registers)) * (move.packed ? 2 : 1);
    const auto add = [&](uint32_t column) {
        move.areas.push_back({move.at.lane, lanes_of(move.shape), column, columns});
    };
    if (!find_lanes(w, in.extra->d.empty() ? "tcgen05.st" : "tcgen05.ld", move)) return move;
    add(move.at.column);
    if (move.shape == Shape::s16x32bx2) add(move.at.column + move.second_half);
    return move;
}

// body(register, lane of the warp, lane, column) of each element; of a packed one, of its first column.
template <class Body>
void for_elements(const Move& move, size_t registers, Body&& body) {
    for (unsigned r = 0; r < registers; ++r)
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const TensorPlace place = element_place(move.shape, lane, r, move.packed ? 0 : move.second_half);
            const uint32_t column = move.packed ? 2 * place.column : place.column;
            body(r, lane, move.at.lane + place.lane, move.at.column + column);
        }
}

uint32_t address_of(const Warp& w, const Instruction& in) {
    return uint32_t(read_any(w, in.a, 0) + uint64_t(in.displacement));
}

void load_now(Warp& w, const Instruction& in, const Move& move, const TensorAccess& access) {
    Cta& cta = *w.cta;
    for (const TensorArea& area : move.areas) tensor_read(access, cta, area);
    TensorMemory& memory = tensor_memory(cta);
    const auto& targets = in.extra->d;
    std::vector<uint32_t> bad(targets.size());
    for_elements(move, targets.size(), [&](unsigned r, unsigned lane, uint32_t row, uint32_t column) {
        uint32_t value = memory.cell(row, column);
        bool good = memory.good(row, column);
        if (move.packed) {
            value = (value & 0xffff) | memory.cell(row, column + 1) << 16;
            good &= memory.good(row, column + 1) != 0;
        }
        w.row<uint32_t>(targets[r])[lane] = value;
        bad[r] |= uint32_t(!good) << lane;
    });
    for (size_t r = 0; r < targets.size(); ++r) {
        set_tainted(w, targets[r], bad[r]);
        fill_copies(w, w.loading_copies, targets[r], access.tick);
    }
}

Step load(Warp& w, const Instruction& in, uint32_t) {
    TensorWork& work = tensor_work(w);
    const Move move = make_move(w, in, address_of(w, in), in.extra->d.size());
    const TensorAccess access = tensor_access(w, in, kAllLanes, work.loads, ++work.loads_issued, "tcgen05.ld");
    for (const auto& target : in.extra->d) {
        std::fill_n(w.row<uint32_t>(target), kLanes, 0xffffffffu);
        w.loading_register[target.id] = work.loads_issued;
    }
    bool good = !move.areas.empty();
    for (const TensorArea& area : move.areas) good = good && check_area(access, *w.cta, area);
    Warp* warp = &w;
    w.cluster->defer({[=, &in, &work] {
                          if (good) load_now(*warp, in, move, access);
                          ++work.loads_done;
                          ++warp->cluster->progress;
                      },
                      &in, warp, "tcgen05.ld"});
    return Step::next;
}

void store_now(Warp& w, const Move& move, const TensorAccess& access, const std::vector<uint32_t>& values,
               const std::vector<uint32_t>& bad) {
    Cta& cta = *w.cta;
    for (const TensorArea& area : move.areas) tensor_write(access, cta, area);
    TensorMemory& memory = tensor_memory(cta);
    for_elements(move, bad.size(), [&](unsigned r, unsigned lane, uint32_t row, uint32_t column) {
        const uint32_t value = values[r * kLanes + lane];
        const uint8_t good = !(bad[r] >> lane & 1);
        memory.cell(row, column) = move.packed ? value & 0xffff : value;
        memory.good(row, column) = good;
        if (!move.packed) return;
        memory.cell(row, column + 1) = value >> 16;
        memory.good(row, column + 1) = good;
    });
}

Step store(Warp& w, const Instruction& in, uint32_t) {
    TensorWork& work = tensor_work(w);
    const auto& sources = in.extra->b;
    const Move move = make_move(w, in, address_of(w, in), sources.size());
    const TensorAccess access = tensor_access(w, in, kAllLanes, work.stores, ++work.stores_issued, "tcgen05.st");
    std::vector<uint32_t> values, bad;
    for (const auto& source : sources) {
        const auto* row = w.row<uint32_t>(source);
        values.insert(values.end(), row, row + kLanes);
        bad.push_back(tainted_lanes(w, source));
    }
    bool good = !move.areas.empty();
    for (const TensorArea& area : move.areas) good = good && check_area(access, *w.cta, area);
    Warp* warp = &w;
    w.cluster->defer({[=, &work, values = std::move(values), bad = std::move(bad)] {
                          if (good) store_now(*warp, move, access, values, bad);
                          ++work.stores_done;
                          ++warp->cluster->progress;
                      },
                      &in, warp, "tcgen05.st"});
    return Step::next;
}

constexpr uint32_t kStores = 1;

Step wait(Warp& w, const Instruction& in, uint32_t) {
    TensorWork& work = tensor_work(w);
    const bool stores = in.flags & kStores;
    if (stores ? work.stores_done < work.stores_issued : work.loads_done < work.loads_issued) {
        w.wait = {};
        w.wait.kind = Wait::Kind::tensor_moves;
        w.wait.value = stores;
        return Step::blocked;
    }
    if (stores)
        learn(w, kAllLanes, work.stores_waited_agent, work.stores_waited = work.stores_issued);
    else
        learn(w, kAllLanes, work.loads_waited_agent, work.loads_waited = work.loads_issued);
    return Step::next;
}

constexpr uint32_t kAfter = 1;

Step fence(Warp& w, const Instruction& in, uint32_t lanes) {
    TensorWork& work = tensor_work(w);
    if (in.flags & kAfter) {
        const auto seen = released(w, lanes).seen;
        if (work.known.size() < seen.size()) work.known.resize(seen.size());
        for (size_t i = 0; i < seen.size(); ++i) work.known[i] = std::max(work.known[i], seen[i]);
    } else {
        learn(w, lanes, work.loads, work.loads_waited);
        learn(w, lanes, work.stores, work.stores_waited);
        for (uint32_t left = lanes; left; left &= left - 1) {
            const unsigned lane = std::countr_zero(left);
            // Only lanes that have issued something come to know something of their own: that costs.
            if (work.issued_by[lane]) learn(w, 1u << lane, work.issues_fenced, work.issued_by[lane]);
        }
    }
    return Step::next;
}

void decode_move(Decoder& decoder, bool is_store) {
    Instruction& out = decoder.out;
    if (!decoder.mod("sync") || !decoder.mod("aligned")) decoder.error(".sync.aligned expected");
    unsigned shape = 0;
    while (shape < std::size(kShapes) && !decoder.mod(kShapes[shape])) ++shape;
    if (shape == std::size(kShapes)) decoder.error("tcgen05.ld and st have no such shape");
    const auto number = decoder.one_of({"x1", "x2", "x4", "x8", "x16", "x32", "x64", "x128"});
    if (number.empty()) decoder.error("the number of repetitions is missing");
    out.flags = shape | (decoder.mod(is_store ? "unpack::16b" : "pack::16b") ? kPacked : 0);
    if (!decoder.mod("b32")) decoder.error(".b32 expected");
    constexpr unsigned kRegisters[] = {1, 1, 2, 4, 1};
    const unsigned count = unsigned(std::atoi(number.data() + 1)) * kRegisters[shape];
    out.a = decoder.address(decoder.node(is_store ? 0 : 1), out.displacement);
    size_t next = is_store ? 1 : 2;
    if (Shape(shape) == Shape::s16x32bx2) {
        if (out.flags & kPacked)
            decoder.error("16 bits a column with 16x32bx2 are not modelled: with the other shapes they are");
        out.displacement2 = decoder.constant(next++);
    }
    Extra& extra = decoder.extra();
    if (is_store)
        extra.b = decoder.sources(decoder.node(next), Type::b32);
    else
        extra.d = decoder.dests(decoder.node(0), Type::b32);
    const size_t given = is_store ? extra.b.size() : extra.d.size();
    if (given != count) decoder.error(concat("the instruction moves ", count, " registers, ", given, " are given"));
    out.gather = Gather::warp;
    out.sets_taint = out.is_tensor_load = !is_store;
    decoder.set(is_store ? store : load);
}

}  // namespace

bool tensor_moves_done(const Warp& warp, bool stores) {
    const TensorWork& work = *warp.tensor;
    return stores ? work.stores_done == work.stores_issued : work.loads_done == work.loads_issued;
}

uint32_t tensor_loads_done(const Warp& warp) { return warp.tensor ? warp.tensor->loads_done : 0; }
uint32_t tensor_loads_waited(const Warp& warp) { return warp.tensor ? warp.tensor->loads_waited : 0; }

void decode_tensor_load(Decoder& decoder) { decode_move(decoder, false); }
void decode_tensor_store(Decoder& decoder) { decode_move(decoder, true); }

void decode_tensor_wait(Decoder& decoder) {
    decoder.out.flags = decoder.one_of({"wait::ld", "wait::st"}) == "wait::st" ? kStores : 0;
    if (!decoder.mod("sync") || !decoder.mod("aligned")) decoder.error(".sync.aligned expected");
    decoder.out.gather = Gather::warp;
    decoder.set(wait);
}

void decode_tensor_fence(Decoder& decoder) {
    const auto name = decoder.one_of({"fence::before_thread_sync", "fence::after_thread_sync"});
    decoder.out.flags = name == "fence::after_thread_sync" ? kAfter : 0;
    decoder.set(fence);
}

}  // namespace deep_gemm::simulator
