// What all forms of mma.sync share: how an instruction is described, and its operands as numbers.
#pragma once

#include "../core/execute.hpp"

namespace deep_gemm::simulator {

constexpr unsigned kMmaMaxRows = 16, kMmaFewRows = 8, kMmaN = 8, kMmaMaxK = 64;

/// Indices of Extra::values.
enum MmaValue {
    kMmaM,
    kMmaK,
    kMmaTypeA,
    kMmaTypeB,
    kMmaTypeD,
    kMmaSaturate,
    kMmaInBytes,   // elements of 4 and 6 bits each stand in a byte
    kMmaScales,    // so many along K for each row of A and column of B
    kMmaExponents  // they are UE8M0, not UE4M3
};

using MmaRow = float __attribute__((vector_size(kMmaN * sizeof(float))));  // of D

struct MmaOperands {
    float a[kMmaMaxRows][kMmaMaxK];
    MmaRow b[kMmaMaxK];  // K outside, so that a row of D is computed at once
    bool bad_row[kMmaMaxRows] = {}, bad_column[kMmaN] = {};
};

/// Multiply rows of A and columns of B by their scales.
void scale_operands(Warp& w, const Instruction& in, MmaOperands& operands);
/// Elements of 4 or 6 bits that stand in a byte each: those of 4 in its middle.
void convert_in_bytes(Type type, const char* from, unsigned count, float* to);

/// What .kind says, and the scales behind the operands: `m16n8` is decoded already.
struct MmaKind {
    bool given = false, in_bytes = false;
    unsigned k = 0, scales = 0;
    bool exponents = false;
};
MmaKind decode_kind(Decoder& decoder);
void check_kind(Decoder& decoder, const MmaKind& kind, Type a, Type b, Type d, unsigned m, unsigned k);
void decode_scales(Decoder& decoder, const MmaKind& kind);

}  // namespace deep_gemm::simulator
