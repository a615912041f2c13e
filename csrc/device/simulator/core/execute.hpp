// Loops over the 32 lanes of a warp, written so that the compiler vectorises the full-warp case.
#pragma once

#include <bit>

#include "machine.hpp"
#include "parser.hpp"

namespace deep_gemm::simulator {

// Values narrower than 32 bits live zero-extended in 32-bit rows.
template <class T>
struct StorageOf {
    using type = std::conditional_t<(sizeof(T) >= 4), T, uint32_t>;
};
template <class T>
using Storage = typename StorageOf<T>::type;

template <class T>
inline T get(const Storage<T>* row, unsigned lane) {
    if constexpr (sizeof(T) >= 4)
        return row[lane];
    else
        return std::bit_cast<T>(static_cast<std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>(row[lane]));
}

template <class T>
inline void put(Storage<T>* row, unsigned lane, T value) {
    if constexpr (sizeof(T) >= 4)
        row[lane] = value;
    else
        row[lane] = std::bit_cast<std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>(value);
}

template <class Body>
[[gnu::always_inline]] inline void for_lanes(uint32_t lanes, Body&& body) {
    if (lanes == kAllLanes) {
#pragma GCC ivdep
        for (unsigned lane = 0; lane < kLanes; ++lane) body(lane);
    } else {
        for (uint32_t left = lanes; left; left &= left - 1) body(unsigned(std::countr_zero(left)));
    }
}

template <class D, class A, auto F>
Step unary_op(Warp& warp, const Instruction& in, uint32_t lanes) {
    auto* d = warp.row<Storage<D>>(in.d);
    const auto* a = warp.row<Storage<A>>(in.a);
    for_lanes(lanes, [&](unsigned i) { put<D>(d, i, D(F(get<A>(a, i)))); });
    return Step::next;
}

template <class D, class A, class B, auto F>
Step binary_op(Warp& warp, const Instruction& in, uint32_t lanes) {
    auto* d = warp.row<Storage<D>>(in.d);
    const auto* a = warp.row<Storage<A>>(in.a);
    const auto* b = warp.row<Storage<B>>(in.b);
    for_lanes(lanes, [&](unsigned i) { put<D>(d, i, D(F(get<A>(a, i), get<B>(b, i)))); });
    return Step::next;
}

template <class D, class A, class B, class C, auto F>
Step ternary_op(Warp& warp, const Instruction& in, uint32_t lanes) {
    auto* d = warp.row<Storage<D>>(in.d);
    const auto* a = warp.row<Storage<A>>(in.a);
    const auto* b = warp.row<Storage<B>>(in.b);
    const auto* c = warp.row<Storage<C>>(in.c);
    for_lanes(lanes, [&](unsigned i) { put<D>(d, i, D(F(get<A>(a, i), get<B>(b, i), get<C>(c, i)))); });
    return Step::next;
}

/// The value of a register of any width, zero-extended.
inline uint64_t read_any(const Warp& warp, const Operand& operand, unsigned lane) {
    return operand.bytes == 8 ? warp.row<uint64_t>(operand)[lane] : warp.row<uint32_t>(operand)[lane];
}
inline void write_any(Warp& warp, const Operand& operand, unsigned lane, uint64_t value) {
    if (operand.bytes == 8)
        warp.row<uint64_t>(operand)[lane] = value;
    else
        warp.row<uint32_t>(operand)[lane] = uint32_t(value);
}

inline Step nothing(Warp&, const Instruction&, uint32_t) { return Step::next; }

}  // namespace deep_gemm::simulator
