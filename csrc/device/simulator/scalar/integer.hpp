// What the integer files share: dispatch over the integer types.
#pragma once

#include "../core/execute.hpp"

namespace deep_gemm::simulator {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Expands call(T) for the C++ type of a PTX integer type; `decoder` must be in scope.
#define EACH_INTEGER(type, call)                    \
    switch (type) {                                 \
        case Type::u16:                             \
        case Type::b16:                             \
            call(uint16_t) break;                   \
        case Type::s16:                             \
            call(int16_t) break;                    \
        case Type::u32:                             \
        case Type::b32:                             \
            call(uint32_t) break;                   \
        case Type::s32:                             \
            call(int32_t) break;                    \
        case Type::u64:                             \
        case Type::b64:                             \
            call(uint64_t) break;                   \
        case Type::s64:                             \
            call(int64_t) break;                    \
        default:                                    \
            decoder.error("integer type expected"); \
    }

inline void binary_operands(Decoder& decoder, Type type) {
    decoder.out.d = decoder.dest(0, type);
    decoder.out.a = decoder.source(1, type);
    decoder.out.b = decoder.source(2, type);
}

}  // namespace deep_gemm::simulator
