// mma.sync: a warp multiplies an M x K by a K x 8 matrix, all of it in registers; M is 16 or 8.
//
// Lane l = 4 group + member. A register of A or B packs neighbours in K. Register r of A is row group + 8 (r % 2) and
// word member + 4 (r / 2) of that row's K; with 8 rows, and of B, row or column group and word member + 4 r. D has row
// group (+ 8) and columns 2 member and the next one.
#include <bit>
#include <cstring>

#include "../../../util/wide_vectors.hpp"
#include "matrix_unit.hpp"
#include "mma_sync.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr unsigned kMaxRows = kMmaMaxRows, kFewRows = kMmaFewRows, kN = kMmaN, kMaxK = kMmaMaxK, kMaxWords = 8;

using Row = MmaRow;
using Operands = MmaOperands;

// Words of `rows` rows of K, as they are spread over the registers of the lanes.
struct Words {
    uint32_t words[kMaxRows][kMaxWords];
    void read(Warp& w, const std::vector<Operand>& registers, unsigned rows, bool* bad_rows) {
        const unsigned halves = rows / kFewRows;
        for (unsigned r = 0; r < registers.size(); ++r) {
            const auto* values = w.row<uint32_t>(registers[r]);
            const unsigned row = kFewRows * (r % halves), word = 4 * (r / halves);
            for (unsigned lane = 0; lane < kLanes; ++lane) words[row + lane / 4][word + lane % 4] = values[lane];
            for (uint32_t bad = tainted_lanes(w, registers[r]); bad; bad &= bad - 1)
                bad_rows[row + unsigned(std::countr_zero(bad)) / 4] = true;
        }
    }
    void convert(const Extra& extra, Type type, unsigned row, unsigned k, float* to) const {
        const auto* from = reinterpret_cast<const char*>(words[row]);
        if (extra.values[kMmaInBytes] && type_bits(type) < 8) return convert_in_bytes(type, from, k, to);
        convert_elements(type, from, k, to);
    }
};

void read_operands(Warp& w, const Instruction& in, Operands& out) {
    const Extra& extra = *in.extra;
    const auto m = unsigned(extra.values[kMmaM]), k = unsigned(extra.values[kMmaK]);
    Words words;
    words.read(w, extra.a, m, out.bad_row);
    for (unsigned row = 0; row < m; ++row) words.convert(extra, Type(extra.values[kMmaTypeA]), row, k, out.a[row]);
    words.read(w, extra.b, kN, out.bad_column);
    for (unsigned column = 0; column < kN; ++column) {
        float elements[kMaxK];
        words.convert(extra, Type(extra.values[kMmaTypeB]), column, k, elements);
        for (unsigned i = 0; i < k; ++i) out.b[i][column] = elements[i];
    }
    if (extra.values[kMmaScales]) scale_operands(w, in, out);
}

// Products of two elements are exact in FP32, so that it does not matter whether a host fuses them with the sum.
DEEP_GEMM_WIDE_VECTORS void multiply(const Operands& from, unsigned m, unsigned k, Row (&sums)[kMaxRows]) {
    constexpr unsigned kTogether = 4;  // rows whose sums do not wait for each other
    for (unsigned first = 0; first < m; first += kTogether) {
        Row out[kTogether] = {};
        for (unsigned i = 0; i < k; ++i)
            for (unsigned row = 0; row < kTogether; ++row) out[row] += from.a[first + row][i] * from.b[i];
        for (unsigned row = 0; row < kTogether; ++row) sums[first + row] = out[row];
    }
}

// What stands in register r of D: FP16 packs two neighbours.
struct Position {
    unsigned row, column;  // of a lane's first element
    Position(Type type, unsigned r, unsigned lane) {
        const unsigned element = type == Type::f16 ? 2 * r : r;
        row = lane / 4 + kFewRows * (element / 2), column = 2 * (lane % 4) + element % 2;
    }
};

template <class Add>
void add_sums(Type type, unsigned r, const Row* sums, const uint32_t* c, uint32_t* d, Add&& add) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const Position at(type, r, lane);
        d[lane] = add(c[lane], reinterpret_cast<const float*>(sums + at.row) + at.column);
    }
}

void add_register(Type type, unsigned r, const Row* sums, const uint32_t* c, uint32_t* d, bool saturate) {
    if (type == Type::f32)
        add_sums(Type::f32, r, sums, c, d, [](uint32_t c, const float* sum) {
            return std::bit_cast<uint32_t>(std::bit_cast<float>(c) + sum[0]);
        });
    else if (type == Type::f16)
        add_sums(Type::f16, r, sums, c, d, [](uint32_t c, const float* sum) {
            const float low = half_to_float(uint16_t(c)) + sum[0], high = half_to_float(uint16_t(c >> 16)) + sum[1];
            return uint32_t(float_to_half(high)) << 16 | float_to_half(low);
        });
    else
        add_sums(Type::s32, r, sums, c, d, [=](uint32_t c, const float* sum) {
            return uint32_t(add_integers(int32_t(c), int32_t(sum[0]), saturate));
        });
}

uint32_t bad_lanes(const Operands& operands, Type type, unsigned r) {
    uint32_t bad = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const Position at(type, r, lane);
        const bool is_bad = operands.bad_row[at.row] || operands.bad_column[at.column] ||
                            (type == Type::f16 && operands.bad_column[at.column + 1]);
        bad |= uint32_t(is_bad) << lane;
    }
    return bad;
}

Step mma(Warp& w, const Instruction& in, uint32_t) {
    const Extra& extra = *in.extra;
    const auto type = Type(extra.values[kMmaTypeD]);
    const auto m = unsigned(extra.values[kMmaM]), k = unsigned(extra.values[kMmaK]);
    Operands operands;
    Row sums[kMaxRows];
    read_operands(w, in, operands);
    multiply(operands, m, k, sums);
    for (unsigned r = 0; r < extra.d.size(); ++r) {
        // D may be the registers of C, so each register's taint is read before it is written.
        const uint32_t bad = w.any_tainted ? tainted_lanes(w, extra.c[r]) | bad_lanes(operands, type, r) : 0;
        add_register(type, r, sums, w.row<uint32_t>(extra.c[r]), w.row<uint32_t>(extra.d[r]),
                     extra.values[kMmaSaturate]);
        set_tainted(w, extra.d[r], bad);
    }
    ++w.cluster->statistics.matrix_multiplies;
    w.cluster->statistics.multiply_adds += uint64_t(m) * kN * k;
    return Step::next;
}

bool is_known(Type d, Type a, Type b, unsigned m, unsigned k) {
    const unsigned bits = type_bits(a);
    if (bits != type_bits(b) || (k * bits != 128 && (k * bits != 256 || m == kFewRows))) return false;
    if (m == kFewRows && is_float(a)) return false;
    switch (a) {
        case Type::s8:
        case Type::u8:
        case Type::s4:
        case Type::u4:
            return !is_float(b) && d == Type::s32;
        case Type::e4m3:
        case Type::e5m2:
            return is_float(b) && (d == Type::f32 || d == Type::f16);
        case Type::f16:
            return b == a && (d == Type::f32 || d == Type::f16);
        case Type::bf16:
        case Type::tf32:
            return b == a && d == Type::f32;
        default:
            return false;
    }
}

void decode_mma(Decoder& decoder) {
    Instruction& out = decoder.out;
    Extra& extra = decoder.extra();
    int* v = extra.values;
    if (!decoder.mod("sync") || !decoder.mod("aligned")) decoder.error(".sync.aligned expected");
    unsigned m = 0, n = 0, k = 0;
    decoder.take_shape(m, n, k);
    if ((m != kMaxRows && m != kFewRows) || n != kN) decoder.error("only products of shape m16n8 and m8n8 are known");
    if (!decoder.mod("row") || !decoder.mod("col")) decoder.error(".row.col expected");
    v[kMmaSaturate] = decoder.mod("satfinite");
    const MmaKind kind = decode_kind(decoder);
    const Type d = decoder.need_type(), a = decoder.need_type(), b = decoder.need_type(), c = decoder.need_type();
    if (c != d) decoder.error("the types of C and D must be the same");
    if (kind.given)
        check_kind(decoder, kind, a, b, d, m, k);
    else if (!is_known(d, a, b, m, k))
        decoder.error("mma has no product of these types and this shape");
    if (v[kMmaSaturate] && d != Type::s32) decoder.error(".satfinite is for integers");
    v[kMmaM] = int(m), v[kMmaK] = int(k), v[kMmaTypeA] = int(a), v[kMmaTypeB] = int(b), v[kMmaTypeD] = int(d);
    const Type sum_register = d == Type::f16 ? Type::b32 : d;
    extra.d = decoder.dests(decoder.node(0), sum_register);
    extra.a = decoder.sources(decoder.node(1), Type::b32);
    extra.b = decoder.sources(decoder.node(2), Type::b32);
    extra.c = decoder.sources(decoder.node(3), sum_register);
    decode_scales(decoder, kind);
    const size_t b_registers = k * (kind.in_bytes ? 8 : type_bits(b)) / 128,
                 d_registers = m * kN / kLanes / (d == Type::f16 ? 2 : 1), a_registers = m / kFewRows * b_registers;
    if (extra.a.size() != a_registers || extra.b.size() != b_registers || extra.d.size() != d_registers ||
        extra.c.size() != d_registers)
        decoder.error("the numbers of registers do not belong to the shape");
    out.gather = Gather::warp;
    out.sets_taint = true;
    decoder.set(mma);
}

}  // namespace

void add_mma_sync(DecodeTable& table) { table["mma"] = decode_mma; }

}  // namespace deep_gemm::simulator
