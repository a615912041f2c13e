// What wgmma and tcgen05.mma share: operands in shared memory described by 64-bit descriptors, and the product.
#pragma once

#include "../memory/memory.hpp"

namespace deep_gemm::simulator {

constexpr unsigned kMatrixK = 64;  // the most elements of K in one instruction

/// One operand as FP32, row after row, with the rows that contain uninitialised memory.
struct Matrix {
    float values[256 * kMatrixK];
    bool bad[256];
    void clear(unsigned rows) { std::fill(bad, bad + rows, false); }
};

/// A descriptor, decoded. `swizzle` is the exponent: 0 none, 1 32B, 2 64B, 3 128B.
struct OperandLayout {
    uint32_t start, leading, stride;
    int swizzle;
    uint32_t base_offset;
};

OperandLayout wgmma_layout(uint64_t descriptor);
/// Offset of 16 bytes of a K-major operand: chunk `chunk` of row `row`.
uint32_t chunk_address(const OperandLayout& layout, unsigned row, unsigned chunk);

/// How elements stand in shared memory: so many in each 16 bytes, from its start on. 4- and 6-bit ones may leave a gap.
struct Elements {
    Type type;
    unsigned per_chunk;
    explicit Elements(Type type) : type(type), per_chunk(128 / type_bits(type)) {}
    Elements(Type type, unsigned per_chunk) : type(type), per_chunk(per_chunk) {}
};
void convert_elements(Type type, const char* from, unsigned count, float* to);
/// Read `rows` x 32 bytes of K through the asynchronous proxy, to rows `first` and up of `out`. `mn_major`: 0 K-major,
/// 1 transposed.
void fetch_operand(const AsyncAccess& given, Cta& cta, const OperandLayout& layout, unsigned rows, int mn_major,
                   Elements elements, Matrix& out, unsigned first = 0);
/// D + sum in 32 bits, which wrap around or stop at the ends.
int32_t add_integers(int32_t d, int32_t sum, bool saturate);
/// d[m][n] = sum over k of a[m][k] * b[n][k], in FP32.
void multiply(const float* a, const float* b, unsigned m, unsigned n, unsigned k, float* d);

}  // namespace deep_gemm::simulator
