// Operand layouts of the matrix units, and an FP32 product that the compiler vectorises.
#include "matrix_unit.hpp"

#include <algorithm>
#include <cstring>

#include "../../../util/require.hpp"
#include "../../../util/wide_vectors.hpp"

namespace deep_gemm::simulator {

OperandLayout wgmma_layout(uint64_t descriptor) {
    constexpr int kSwizzles[] = {0, 3, 2, 1};
    return {uint32_t(descriptor & 0x3fff) << 4, uint32_t(descriptor >> 16 & 0x3fff) << 4,
            uint32_t(descriptor >> 32 & 0x3fff) << 4, kSwizzles[descriptor >> 62], uint32_t(descriptor >> 49 & 7)};
}

namespace {

// Four 6-bit elements stand in three bytes.
uint8_t six_bits(const char* from, unsigned index) {
    const unsigned bit = 6 * index, byte = bit / 8, shift = bit % 8;
    const unsigned low = uint8_t(from[byte]), high = shift > 2 ? uint8_t(from[byte + 1]) : 0u;
    return uint8_t((low >> shift | high << (8 - shift)) & 63);
}

}  // namespace

void convert_elements(Type type, const char* from, unsigned count, float* to) {
    switch (type) {
        case Type::e4m3: {
            const float* table = e4m3_table();
            for (unsigned i = 0; i < count; ++i) to[i] = table[uint8_t(from[i])];
            break;
        }
        case Type::e5m2: {
            const float* table = e5m2_table();
            for (unsigned i = 0; i < count; ++i) to[i] = table[uint8_t(from[i])];
            break;
        }
        case Type::s8:
            for (unsigned i = 0; i < count; ++i) to[i] = float(int8_t(from[i]));
            break;
        case Type::u8:
            for (unsigned i = 0; i < count; ++i) to[i] = float(uint8_t(from[i]));
            break;
        case Type::s4:  // the low half of a byte comes first
            for (unsigned i = 0; i < count; ++i) to[i] = float(int8_t(from[i / 2] << (i % 2 ? 0 : 4)) >> 4);
            break;
        case Type::u4:
            for (unsigned i = 0; i < count; ++i) to[i] = float(uint8_t(from[i / 2]) >> (i % 2 ? 4 : 0) & 15);
            break;
        case Type::e2m1:
            for (unsigned i = 0; i < count; ++i) to[i] = e2m1_to_float(uint8_t(from[i / 2]) >> (i % 2 ? 4 : 0) & 15);
            break;
        case Type::e2m3:
            for (unsigned i = 0; i < count; ++i) to[i] = e2m3_to_float(six_bits(from, i));
            break;
        case Type::e3m2:
            for (unsigned i = 0; i < count; ++i) to[i] = e3m2_to_float(six_bits(from, i));
            break;
        case Type::bf16:
            for (unsigned i = 0; i < count; ++i) {
                uint16_t bits;
                std::memcpy(&bits, from + 2 * i, 2);
                to[i] = bf16_to_float(bits);
            }
            break;
        case Type::f16:
            for (unsigned i = 0; i < count; ++i) {
                uint16_t bits;
                std::memcpy(&bits, from + 2 * i, 2);
                to[i] = half_to_float(bits);
            }
            break;
        default:  // tf32: the low 13 bits are ignored
            for (unsigned i = 0; i < count; ++i) {
                uint32_t bits;
                std::memcpy(&bits, from + 4 * i, 4);
                to[i] = __builtin_bit_cast(float, bits & ~0x1fffu);
            }
            break;
    }
}

int32_t add_integers(int32_t d, int32_t sum, bool saturate) {
    const int64_t exact = int64_t(d) + sum;
    return int32_t(saturate ? std::clamp<int64_t>(exact, INT32_MIN, INT32_MAX) : exact);
}

namespace {

uint32_t swizzled(const OperandLayout& layout, uint32_t address) {
    return address ^ (address >> 7 & ((1u << layout.swizzle) - 1)) << 4;
}

uint32_t span_bytes(const OperandLayout& layout) { return 16u << layout.swizzle; }

}  // namespace

uint32_t chunk_address(const OperandLayout& layout, unsigned row, unsigned chunk) {
    const uint32_t group = layout.start + row / 8 * layout.stride;
    return layout.swizzle ? swizzled(layout, group + row % 8 * span_bytes(layout) + chunk * 16)
                          : group + chunk * layout.leading + row % 8 * 16;
}

void fetch_operand(const AsyncAccess& given, Cta& cta, const OperandLayout& layout, unsigned rows, int mn_major,
                   Elements elements, Matrix& out, unsigned first) {
    const unsigned per_chunk = elements.per_chunk, element = 16 / per_chunk;
    const unsigned k_elements = 2 * per_chunk, used_bytes = per_chunk * type_bits(elements.type) / 8;
    const uint32_t span = span_bytes(layout);
    if (layout.base_offset)
        report(*given.cluster, "descriptor",
               concat(given.what, " uses a descriptor with a base offset, which is not modelled"), given.warp,
               given.instruction);
    AsyncAccess access = given;
    access.swizzle = uint8_t(layout.swizzle);
    if (layout.swizzle && (rows > 8 || mn_major) && layout.stride % (8 * span))
        report(*access.cluster, "descriptor",
               concat(access.what, " uses a descriptor whose stride of ", layout.stride,
                      " bytes is no multiple of its swizzle pattern of ", 8 * span, " bytes"),
               access.warp, access.instruction);
    bool outside = false;
    const auto chunk = [&](uint32_t address, unsigned row, unsigned k, unsigned row_step) {
        row += first;
        if (address < kReservedShared || address + 16 > cta.shared.size()) {
            if (!outside)
                report(*access.cluster, "out of bounds",
                       concat(access.what, " reads shared memory ", hex(address), ", outside [", hex(kReservedShared),
                              ", ", hex(cta.shared.size()), ")"),
                       access.warp, access.instruction);
            outside = true;
            return;
        }
        async_read(access, cta, address, used_bytes);
        const bool bad = !initialised(cta, address, used_bytes);
        float converted[32];
        convert_elements(elements.type, cta.shared.data() + address, per_chunk, converted);
        if (row_step == 0) {
            if (bad) out.bad[row] = true;
            std::memcpy(out.values + row * kMatrixK + k, converted, per_chunk * sizeof(float));
        } else {
            for (unsigned i = 0; i < per_chunk; ++i) {
                if (bad) out.bad[row + i] = true;
                out.values[(row + i) * kMatrixK + k] = converted[i];
            }
        }
    };
    if (!mn_major) {
        for (unsigned row = 0; row < rows; ++row)
            for (unsigned c = 0; c < 2; ++c) chunk(chunk_address(layout, row, c), row, c * per_chunk, 0);
        return;
    }
    // MN-major: a chunk holds neighbours in M or N; `span` bytes of them stand together, eight K rows make a group.
    const unsigned per_span = span / element;
    for (unsigned k = 0; k < k_elements; ++k)
        for (unsigned row = 0; row < rows; row += per_chunk) {
            const unsigned block = row / per_span, inside = row % per_span;
            const uint32_t address =
                layout.swizzle
                    ? layout.start + block * layout.leading + k / 8 * layout.stride + k % 8 * span + inside * element
                    : layout.start + block * layout.stride + k / 8 * layout.leading + k % 8 * 16;
            chunk(swizzled(layout, address), row, k, 1);
        }
}

DEEP_GEMM_WIDE_VECTORS void multiply(const float* a, const float* b, unsigned m, unsigned n, unsigned k, float* d) {
    static thread_local float columns[kMatrixK * 256];
    for (unsigned row = 0; row < n; ++row)
        for (unsigned i = 0; i < k; ++i) columns[i * 256 + row] = b[row * kMatrixK + i];
    for (unsigned row = 0; row < m; ++row) {
        float* __restrict out = d + row * n;
        const float* values = a + row * kMatrixK;
        for (unsigned j = 0; j < n; ++j) out[j] = 0;
        for (unsigned i = 0; i + 4 <= k; i += 4) {  // K is 8, 16 or 32
            const float* __restrict b0 = columns + i * 256, * __restrict b1 = b0 + 256, * __restrict b2 = b1 + 256, * __restrict b3 = b2 + 256;
            const float a0 = values[i], a1 = values[i + 1], a2 = values[i + 2], a3 = values[i + 3];
            for (unsigned j = 0; j < n; ++j) out[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];
        }
    }
}

}  // namespace deep_gemm::simulator
