// mma.sync with .kind (sm_120a and after): elements of 4 and 6 bits, and scales for blocks of K.
//
// A scale of row r of A is a byte of lane 4 (r % 8) + 2 thread + r / 8, of column c of B one of lane 4 c + thread; the
// first of them is byte `byte`, and the next ones along K follow it.
#include <algorithm>
#include <cmath>

#include "../../../util/require.hpp"
#include "matrix_unit.hpp"
#include "mma_sync.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr unsigned kScaleA = 0, kScaleB = 3;      // in Extra::scales: a register, then `byte` and `thread`
constexpr unsigned kThreadsA = 2, kThreadsB = 4;  // from which scales may come

float scale_of(uint8_t bits, bool exponents) {
    if (exponents) return bits == 0xff ? std::nanf("") : std::ldexp(1.0f, int(bits) - 127);
    float value;
    const char code = char(bits & 0x7f);
    convert_elements(Type::e4m3, &code, 1, &value);
    return value;
}

struct Selected {
    const uint32_t* words;
    unsigned byte, thread;
    uint32_t tainted;
};

Selected selected(Warp& w, const Instruction& in, unsigned first, unsigned threads, const char* name) {
    const Extra& extra = *in.extra;
    const unsigned byte = w.row<uint16_t>(extra.scales[first + 1])[0],
                   thread = w.row<uint16_t>(extra.scales[first + 2])[0];
    const unsigned scales = unsigned(extra.values[kMmaScales]);
    if (byte % scales != 0 || byte + scales > 4 || thread >= threads)
        report(*w.cluster, "bad selector",
               concat("mma's scales of ", name, " must be selected by a byte that is a multiple of ", scales,
                      " below 4 and a thread below ", threads, ", got {", byte, ", ", thread, "}"),
               &w);
    return {w.row<uint32_t>(extra.scales[first]), byte & 3, thread % threads, tainted_lanes(w, extra.scales[first])};
}

const Type kFewBits[] = {Type::e4m3, Type::e5m2, Type::e2m3, Type::e3m2, Type::e2m1};

bool has_few_bits(Type type) { return std::find(std::begin(kFewBits), std::end(kFewBits), type) != std::end(kFewBits); }

}  // namespace

void convert_in_bytes(Type type, const char* from, unsigned count, float* to) {
    for (unsigned i = 0; i < count; ++i) {
        const auto byte = uint8_t(from[i]);
        const char code[2] = {char(type == Type::e2m1 ? byte >> 2 & 15 : byte & 63), 0};
        convert_elements(type, code, 1, to + i);
    }
}

void scale_operands(Warp& w, const Instruction& in, MmaOperands& operands) {
    const Extra& extra = *in.extra;
    const auto k = unsigned(extra.values[kMmaK]), scales = unsigned(extra.values[kMmaScales]), block = k / scales;
    const bool exponents = extra.values[kMmaExponents];
    const Selected a = selected(w, in, kScaleA, kThreadsA, "A"), b = selected(w, in, kScaleB, kThreadsB, "B");
    const auto scale = [&](const Selected& from, unsigned lane, unsigned i) {
        return scale_of(uint8_t(from.words[lane] >> 8 * ((from.byte + i / block) & 3)), exponents);
    };
    for (unsigned row = 0; row < kMmaMaxRows; ++row) {
        const unsigned lane = 4 * (row % kMmaFewRows) + 2 * a.thread + row / kMmaFewRows;
        operands.bad_row[row] |= a.tainted >> lane & 1;
        for (unsigned i = 0; i < k; ++i) operands.a[row][i] *= scale(a, lane, i);
    }
    for (unsigned column = 0; column < kMmaN; ++column) {
        const unsigned lane = 4 * column + b.thread;
        operands.bad_column[column] |= b.tainted >> lane & 1;
        for (unsigned i = 0; i < k; ++i) operands.b[i][column] *= scale(b, lane, i);
    }
}

MmaKind decode_kind(Decoder& decoder) {
    const auto name = decoder.one_of({"kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"});
    if (name.empty()) return {};
    MmaKind kind{.given = true};
    kind.in_bytes = name.ends_with("f8f6f4");
    kind.k = kind.in_bytes ? 32 : 64;
    if (name == "kind::f8f6f4") return kind;
    if (!decoder.mod("block_scale")) decoder.error(concat(name, " needs .block_scale"));
    const auto vector = decoder.one_of({"scale_vec::1X", "scale_vec::2X", "scale_vec::4X"});
    kind.scales = vector.empty() ? (kind.in_bytes ? 1 : 2) : unsigned(vector[11] - '0');
    const auto type = decoder.one_of({"ue8m0", "ue4m3"});
    kind.exponents = type == "ue8m0";
    const bool either = name == "kind::mxf4nvf4";
    if (type.empty() || (either && vector.empty()))
        decoder.error(concat(name, " needs the type of its scales", either ? " and .scale_vec" : ""));
    const bool known = either          ? kind.exponents ? kind.scales != 1 : kind.scales == 4
                       : kind.in_bytes ? kind.exponents && kind.scales == 1
                                       : kind.exponents && kind.scales == 2;
    if (!known) decoder.error(concat(name, " has no scales of this number and type"));
    return kind;
}

void check_kind(Decoder& decoder, const MmaKind& kind, Type a, Type b, Type d, unsigned m, unsigned k) {
    const bool types = kind.in_bytes ? has_few_bits(a) && has_few_bits(b) : a == Type::e2m1 && b == Type::e2m1;
    const bool sums = d == Type::f32 || (d == Type::f16 && kind.in_bytes && kind.scales == 0);
    if (m != kMmaMaxRows || k != kind.k || !types || !sums)
        decoder.error("mma has no product of this kind with these types and this shape");
}

void decode_scales(Decoder& decoder, const MmaKind& kind) {
    Extra& extra = decoder.extra();
    extra.values[kMmaInBytes] = kind.in_bytes, extra.values[kMmaScales] = int(kind.scales);
    extra.values[kMmaExponents] = kind.exponents;
    if (kind.scales == 0) return;
    for (const size_t first : {4, 6}) {
        const auto scale = decoder.sources(decoder.node(first), Type::b32);
        const auto selectors = decoder.sources(decoder.node(first + 1), Type::b16);
        if (scale.size() != 1 || selectors.size() != 2)
            decoder.error("scales must be one register and the two numbers that select of it");
        extra.scales.insert(extra.scales.end(), {scale[0], selectors[0], selectors[1]});
    }
}

}  // namespace deep_gemm::simulator
