// Integer names, integer arithmetic and function attributes for code that both the device compilers and the host
// compiler read.
#pragma once

// NVRTC has no <cstdint>. Where a standard header is present these aliases name the same types, so nothing clashes.
namespace deep_gemm {
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
static_assert(sizeof(int64_t) == 8 && sizeof(uint64_t) == 8, "64-bit Linux only");

constexpr int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }
constexpr int32_t align_up(int32_t a, int32_t b) { return ceil_div(a, b) * b; }
constexpr int32_t gcd(int32_t a, int32_t b) { return b == 0 ? a : gcd(b, a % b); }

/// A struct that is a template argument. By value it is an object in memory to CUDA 13.2 and later, which kernels would
/// read; but device code must not refer to what nvcc takes for a constant of the host.
#if defined(__CUDACC_RTC__)
template <typename Type>
using Constant = const Type&;
#else
template <typename Type>
using Constant = Type;
#endif
}  // namespace deep_gemm

#if defined(__CUDACC__)
#define DG_HOST_DEVICE __host__ __device__
#define DG_DEVICE __device__ __forceinline__
#else
#define DG_HOST_DEVICE
#endif
