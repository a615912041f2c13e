// Decoding of tcgen05's two descriptors, with what the manual allows.
#include "../../../util/require.hpp"
#include "tensor_products.hpp"

namespace deep_gemm::simulator {

namespace {

uint32_t field(uint32_t descriptor, unsigned from, unsigned bits) { return descriptor >> from & ((1u << bits) - 1); }

Type small_float(uint32_t code) {
    constexpr Type kTypes[] = {Type::e4m3, Type::e5m2, Type::none, Type::e2m3,
                               Type::e3m2, Type::e2m1, Type::none, Type::none};
    return kTypes[code & 7];
}

Type operand_type(TensorKind kind, uint32_t code) {
    switch (kind) {
        case TensorKind::f16:
            return code == 0 ? Type::f16 : code == 1 ? Type::bf16 : Type::none;
        case TensorKind::tf32:
            return code == 2 ? Type::tf32 : Type::none;
        case TensorKind::i8:
            return code == 0 ? Type::u8 : code == 1 ? Type::s8 : Type::none;
        case TensorKind::f8f6f4:
        case TensorKind::mxf8f6f4:
            return small_float(code);
        default:
            return code == 1 ? Type::e2m1 : Type::none;
    }
}

Type sum_type(TensorKind kind, uint32_t code) {
    if (has_block_scales(kind)) return Type::f32;
    if (kind == TensorKind::i8) return code == 2 ? Type::s32 : Type::none;
    if (code == 1) return Type::f32;
    return code == 0 && kind != TensorKind::tf32 ? Type::f16 : Type::none;
}

bool is_width(TensorKind kind, bool pair, unsigned m, unsigned n) {
    if (n < 8 || n > 256) return false;
    if (kind == TensorKind::i8) return pair ? n % 32 == 0 : n % 16 == 0 || (m == 64 && (n == 8 || n == 24));
    return n % (pair ? 16 : 8) == 0;
}

bool is_height(TensorKind kind, bool pair, unsigned m) {
    if (has_block_scales(kind)) return m == (pair ? 256u : 128u);
    return pair ? m == 128 || m == 256 : m == 64 || m == 128;
}

bool refuse(Warp& w, uint32_t descriptor, const char* why) {
    report(*w.cluster, "descriptor", concat("the instruction descriptor ", hex(descriptor), " ", why), &w);
    return false;
}

void decode_scales(TensorKind kind, uint32_t descriptor, ProductShape& shape) {
    const bool exponents = field(descriptor, 23, 1);
    shape.scale = exponents ? Type::ue8m0x2 : Type::e4m3;
    if (kind != TensorKind::mxf4nvf4 && !exponents) shape.scale = Type::none;
    shape.scale_id_b = field(descriptor, 4, 2);
    shape.scale_id_a = field(descriptor, 29, 2);
}

}  // namespace

bool has_block_scales(TensorKind kind) { return kind >= TensorKind::mxf8f6f4; }

bool decode_descriptor(Warp& w, TensorKind kind, bool pair, uint32_t descriptor, ProductShape& shape) {
    if (field(descriptor, 0, 3)) return refuse(w, descriptor, "asks for a sparse product, which is not modelled");
    shape.a = operand_type(kind, field(descriptor, 7, 3));
    shape.b = operand_type(kind, field(descriptor, 10, 3));
    shape.d = sum_type(kind, field(descriptor, 4, 2));
    if (shape.a == Type::none || shape.b == Type::none) return refuse(w, descriptor, "names no operand of this kind");
    if (shape.d == Type::none) return refuse(w, descriptor, "names no type of D of this kind");
    if (kind == TensorKind::f16 && shape.a != shape.b) return refuse(w, descriptor, "mixes FP16 and BF16");
    if (shape.a == Type::bf16 && shape.d == Type::f16) return refuse(w, descriptor, "gives BF16 a D of FP16");
    shape.negate_a = field(descriptor, 13, 1), shape.negate_b = field(descriptor, 14, 1);
    shape.mn_major_a = field(descriptor, 15, 1), shape.mn_major_b = field(descriptor, 16, 1);
    shape.n = field(descriptor, 17, 6) << 3;
    shape.m = field(descriptor, 24, 5) << 4;
    if (!is_height(kind, pair, shape.m)) return refuse(w, descriptor, concat("has M = ", shape.m).c_str());
    if (!is_width(kind, pair, shape.m, shape.n)) return refuse(w, descriptor, concat("has N = ", shape.n).c_str());
    const auto turned = [](bool mn_major, Type type) { return mn_major && type_bits(type) < 8; };
    if (turned(shape.mn_major_a, shape.a) || turned(shape.mn_major_b, shape.b))
        return refuse(w, descriptor, "has an MN-major operand of 4 or 6 bits, which is not modelled");
    if (kind == TensorKind::i8) shape.saturate = field(descriptor, 3, 1);
    if (!has_block_scales(kind)) return true;
    decode_scales(kind, descriptor, shape);
    return shape.scale != Type::none || refuse(w, descriptor, "names no type of scales of this kind");
}

bool tensor_layout(Warp& w, uint64_t descriptor, OperandLayout& layout) {
    constexpr int kNone = -1;
    constexpr int kSwizzles[] = {0, kNone, 3, kNone, 2, kNone, 1, kNone};
    const auto field = [&](unsigned from, unsigned bits) { return uint32_t(descriptor >> from & ((1u << bits) - 1)); };
    layout = {field(0, 14) << 4, field(16, 14) << 4, field(32, 14) << 4, kSwizzles[field(61, 3)], field(49, 3)};
    const char* wrong = nullptr;
    if (field(46, 3) != 1) wrong = "does not have the constant 1 in bits 46 to 48";
    if (field(52, 1)) wrong = "asks for absolute leading offsets, which are not modelled";
    if (layout.swizzle == kNone) wrong = "has a swizzle that is not modelled";
    if (!wrong) return true;
    report(*w.cluster, "descriptor", concat("the shared-memory descriptor ", hex(descriptor), " ", wrong), &w);
    return false;
}

}  // namespace deep_gemm::simulator
