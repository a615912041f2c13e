// Loads, stores and fences.
#pragma once

#include <deep_gemm/ptx/convert.cuh>
#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// cvta.to.shared: the 32-bit shared-window address that the other wrappers take.
DG_DEVICE uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

DG_DEVICE float load_shared(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
    return value;
}

DG_DEVICE float2 load_shared_x2(uint32_t address) {
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address));
    return value;
}

DG_DEVICE float4 load_shared_x4(uint32_t address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address));
    return v;
}

DG_DEVICE int32_t load_shared_int(uint32_t address) {
    int32_t value;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(address));
    return value;
}

DG_DEVICE int2 load_shared_int_x2(uint32_t address) {
    int2 v;
    asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
}

DG_DEVICE int4 load_shared_int_x4(uint32_t address) {
    int4 v;
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}

DG_DEVICE void store_shared_x2(uint32_t address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

DG_DEVICE void store_shared_x4(uint32_t address, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}

DG_DEVICE void store_shared_int(uint32_t address, int32_t value) {
    asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

DG_DEVICE void store_shared_int_x4(uint32_t address, int32_t x, int32_t y, int32_t z, int32_t w) {
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

/// ld.global: coherent, so that what a preceding kernel wrote while this one had already started is seen after
/// griddepcontrol.wait.
DG_DEVICE int32_t load_global_int(const int32_t* address) {
    int32_t value;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

DG_DEVICE void store_shared(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

// Registers of either kind, by their type.
DG_DEVICE void store_shared(uint32_t address, int32_t value) { store_shared_int(address, value); }
DG_DEVICE void store_shared_x2(uint32_t address, int32_t x, int32_t y) {
    asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}
DG_DEVICE void store_shared_x4(uint32_t address, int32_t x, int32_t y, int32_t z, int32_t w) {
    store_shared_int_x4(address, x, y, z, w);
}

/// st.global.cs.v4: 16 bytes of zeros that nobody is about to read again, 16-byte aligned.
DG_DEVICE void clear_global_x4(void* address) {
    asm volatile("st.global.cs.v4.s32 [%0], {%1, %1, %1, %1};" ::"l"(address), "r"(0) : "memory");
}

/// stmatrix: four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. Optionally
/// each transposed.
template <bool kTransposed>
DG_DEVICE void store_matrix_x4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    if constexpr (kTransposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
                     "r"(b), "r"(c), "r"(d)
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
                     "r"(c), "r"(d)
                     : "memory");
}

/// stmatrix of two matrices; the addresses of lanes 16 and up are ignored.
template <bool kTransposed>
DG_DEVICE void store_matrix_x2(uint32_t address, uint32_t a, uint32_t b) {
    if constexpr (kTransposed)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b)
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b)
                     : "memory");
}

/// prefetch.global.L2: bring a line into the L2.
DG_DEVICE void prefetch_l2(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

/// red.add.u32, red.add.f32: add to global memory, in the L2.
DG_DEVICE void add_global(uint32_t* address, uint32_t value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
DG_DEVICE void add_global(float* address, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(address), "f"(value) : "memory");
}

/// red.add.v2.f32 (SM90): two neighbours at once, 8-byte aligned.
DG_DEVICE void add_global_x2(float* address, float x, float y) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(x), "f"(y) : "memory");
}

/// fence.proxy.async: ordinary shared-memory accesses before it are ordered with copies of the engine after it.
DG_DEVICE void fence_for_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace deep_gemm::ptx
