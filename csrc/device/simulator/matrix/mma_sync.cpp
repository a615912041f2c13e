// mma.sync: a warp multiplies an M x K by a K x 8 matrix, all of it in registers; M is 16 or 8.
//
// Lane l = 4 group + member. A register of A or B packs neighbours in K. Register r of A is row group + 8 (r % 2) and
// word member + 4 (r / 2) of that row's K; with 8 rows, and of B, row or column group and word member + 4 r. D has row
// group (+ 8) and columns 2 member and the next one.
#include <algorithm>
#include <cstring>

#include "../core/execute.hpp"
#include "matrix_unit.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr unsigned kMostRows = 16, kFewRows = 8, kN = 8, kMaxK = 64;

enum Value { kM, kK, kTypeA, kTypeB, kTypeD, kSaturate };

struct Operands {
    float a[kMostRows][kMaxK], b[kMaxK][kN];  // B with K outside, so that a row of D is computed at once
    bool bad_row[kMostRows] = {}, bad_column[kN] = {};
};

void read_a(Warp& w, const Instruction& in, Operands& out) {
    const auto type = Type(in.extra->values[kTypeA]);
    const unsigned packed = 32 / type_bits(type), halves = unsigned(in.extra->values[kM]) / kFewRows;
    for (unsigned r = 0; r < in.extra->a.size(); ++r) {
        const auto* words = w.row<uint32_t>(in.extra->a[r]);
        const uint32_t bad = tainted_lanes(w, in.extra->a[r]);
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned row = lane / 4 + kFewRows * (r % halves), word = lane % 4 + 4 * (r / halves);
            convert_elements(type, reinterpret_cast<const char*>(words + lane), packed, out.a[row] + word * packed);
            out.bad_row[row] |= bad >> lane & 1;
        }
    }
}

void read_b(Warp& w, const Instruction& in, Operands& out) {
    const auto type = Type(in.extra->values[kTypeB]);
    const unsigned packed = 32 / type_bits(type);
    for (unsigned r = 0; r < in.extra->b.size(); ++r) {
        const auto* words = w.row<uint32_t>(in.extra->b[r]);
        const uint32_t bad = tainted_lanes(w, in.extra->b[r]);
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned column = lane / 4, word = lane % 4 + 4 * r;
            float elements[8];
            convert_elements(type, reinterpret_cast<const char*>(words + lane), packed, elements);
            for (unsigned i = 0; i < packed; ++i) out.b[word * packed + i][column] = elements[i];
            out.bad_column[column] |= bad >> lane & 1;
        }
    }
}

void multiply(const Operands& from, unsigned m, unsigned k, float (&sums)[kMostRows][kN]) {
    for (unsigned row = 0; row < m; ++row) {
        float out[kN] = {};
        for (unsigned i = 0; i < k; ++i)
            for (unsigned column = 0; column < kN; ++column) out[column] += from.a[row][i] * from.b[i][column];
        std::memcpy(sums[row], out, sizeof(out));
    }
}

uint32_t add_halves(uint32_t c, const float* sums) {
    const float low = half_to_float(uint16_t(c)) + sums[0], high = half_to_float(uint16_t(c >> 16)) + sums[1];
    return uint32_t(float_to_half(high)) << 16 | float_to_half(low);
}

uint32_t add(Type type, uint32_t c, const float* sums, bool saturate) {
    if (type == Type::f32) return __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, c) + sums[0]);
    if (type == Type::f16) return add_halves(c, sums);
    return uint32_t(add_integers(int32_t(c), int32_t(sums[0]), saturate));
}

Step mma(Warp& w, const Instruction& in, uint32_t) {
    const Extra& extra = *in.extra;
    const auto type = Type(extra.values[kTypeD]);
    Operands operands;
    float sums[kMostRows][kN];
    read_a(w, in, operands);
    read_b(w, in, operands);
    const auto m = unsigned(extra.values[kM]), k = unsigned(extra.values[kK]);
    multiply(operands, m, k, sums);
    // D may be the registers of C, so each register's taint is read before it is written.
    for (unsigned r = 0; r < extra.d.size(); ++r) {
        const auto* c = w.row<uint32_t>(extra.c[r]);
        auto* d = w.row<uint32_t>(extra.d[r]);
        uint32_t bad = tainted_lanes(w, extra.c[r]);
        const unsigned element = type == Type::f16 ? 2 * r : r;
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned row = lane / 4 + 8 * (element / 2), column = 2 * (lane % 4) + element % 2;
            d[lane] = add(type, c[lane], sums[row] + column, extra.values[kSaturate]);
            bool is_bad = operands.bad_row[row] || operands.bad_column[column];
            if (type == Type::f16) is_bad |= operands.bad_column[column + 1];
            bad |= uint32_t(is_bad) << lane;
        }
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
    if ((m != kMostRows && m != kFewRows) || n != kN) decoder.error("only products of shape m16n8 and m8n8 are known");
    if (!decoder.mod("row") || !decoder.mod("col")) decoder.error(".row.col expected");
    v[kSaturate] = decoder.mod("satfinite");
    const Type d = decoder.need_type(), a = decoder.need_type(), b = decoder.need_type(), c = decoder.need_type();
    if (c != d) decoder.error("the types of C and D must be the same");
    if (!is_known(d, a, b, m, k)) decoder.error("mma has no product of these types and this shape");
    if (v[kSaturate] && d != Type::s32) decoder.error(".satfinite is for integers");
    v[kM] = int(m), v[kK] = int(k), v[kTypeA] = int(a), v[kTypeB] = int(b), v[kTypeD] = int(d);
    const Type sum_register = d == Type::f16 ? Type::b32 : d;
    extra.d = decoder.dests(decoder.node(0), sum_register);
    extra.a = decoder.sources(decoder.node(1), Type::b32);
    extra.b = decoder.sources(decoder.node(2), Type::b32);
    extra.c = decoder.sources(decoder.node(3), sum_register);
    const size_t b_registers = k * type_bits(b) / 128, d_registers = m * kN / kLanes / (d == Type::f16 ? 2 : 1),
                 a_registers = m / kFewRows * b_registers;
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
