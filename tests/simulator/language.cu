// Scalar C++ that is compiled twice: by NVRTC for the simulator and by the host's compiler, whose results must be equal.
#ifdef __CUDACC_RTC__
#define FUNCTION __device__ __forceinline__
#define FUNCTION_MEMBER __device__ __forceinline__
// The device's compiler would join a product and a sum into one fma; the host's would not.
#define PRODUCT(a, b) __fmul_rn(a, b)
#else
#include <cmath>
#include <cstdint>
#define FUNCTION static inline
#define FUNCTION_MEMBER inline
#define PRODUCT(a, b) ((a) * (b))
#endif

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct Rng {
    u64 state;
    FUNCTION_MEMBER u32 next() {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return u32(state >> 33) ^ u32(state >> 11);
    }
};

FUNCTION u32 collatz(u32 n) {
    u32 steps = 0;
    while (n > 1 && steps < 200) {
        n = n & 1 ? 3 * n + 1 : n >> 1;
        ++steps;
    }
    return steps;
}

FUNCTION u32 dispatch(u32 x) {
    switch (x % 11) {
        case 0: return x * 3;
        case 1: return x ^ 0x55555555;
        case 2: return x / 7;
        case 3: return x % 13;
        case 4: return (x << 5) | (x >> 27);
        case 5: return u32(int(x) >> 3);
        case 6: return u8(x) * u16(x >> 3);
        case 7: return u32(u64(x) * x >> 32);
        case 8: return ~x;
        case 9: return u32(-int(x));
        default: return x - 99;
    }
}

// A heap sort on a local array: dynamic indices, so it lives in local memory.
FUNCTION u32 sort(Rng& rng) {
    u32 a[24];
    for (int i = 0; i < 24; ++i) a[i] = rng.next() >> 20;
    for (int i = 1; i < 24; ++i) {
        u32 v = a[i];
        int j = i - 1;
        while (j >= 0 && a[j] > v) {
            a[j + 1] = a[j];
            --j;
        }
        a[j + 1] = v;
    }
    u32 sum = 0;
    for (int i = 0; i < 24; ++i) sum = sum * 31 + a[i];
    return sum;
}

FUNCTION i64 long_arithmetic(Rng& rng) {
    i64 a = i64(rng.next()) << 20 ^ rng.next(), b = i64(rng.next()) - (i64(1) << 31);
    if (b == 0) b = 3;
    i64 q = a / b, r = a % b;
    u64 uq = u64(a) / (u64(b) | 1), ur = u64(a) % (u64(b) | 1);
    return q * 7 + r * 5 + i64(uq) - i64(ur) + (a >> (b & 63)) + (i64)((u64)a << (b & 31)) + (a < b ? a : b);
}

FUNCTION float floats(Rng& rng) {
    float a = PRODUCT(float(int(rng.next())), 1e-5f), b = PRODUCT(float(rng.next() >> 8), 1e-3f) + 0.5f;
    float c = a / b + sqrtf(b) - fabsf(a) + PRODUCT(fminf(a, b), fmaxf(a, b));
    c = fmaf(a, b, c);
    c += truncf(a) + floorf(b) - ceilf(a) + float(int(b)) + float(u32(b)) + rintf(a);
    return c;
}

FUNCTION double doubles(Rng& rng) {
    double a = double(i64(rng.next())) / 1024 - 1e5, b = double(rng.next()) + 0.5;
    return fma(a, b, a / b) + sqrt(b) - floor(a) + double(float(a)) + double(i64(a)) + fmin(a, b);
}

FUNCTION u32 bytes_of(Rng& rng) {
    u32 x = rng.next();
    signed char s = (signed char)x;
    short h = short(x >> 7);
    u8 b = u8(x >> 3);
    return u32(int(s) * int(h)) + b + u32(u16(h) >> 2) + (s < 0 ? 7 : 9) + u32(u8(s + b));
}

FUNCTION u64 mix(u32 seed) {
    Rng rng{seed * 0x9e3779b97f4a7c15ull + 1};
    u64 hash = 0;
    for (int round = 0; round < 6; ++round) {
        hash = hash * 1099511628211ull + dispatch(rng.next());
        hash = hash * 1099511628211ull + collatz(rng.next() & 1023);
        hash = hash * 1099511628211ull + sort(rng);
        hash = hash * 1099511628211ull + u64(long_arithmetic(rng));
        float f = floats(rng);
        double d = doubles(rng);
        hash = hash * 1099511628211ull + (u32&)f;
        hash = hash * 1099511628211ull + (u64&)d;
        hash = hash * 1099511628211ull + bytes_of(rng);
    }
    return hash;
}

#ifdef __CUDACC_RTC__
extern "C" __global__ void language(u64* out) { out[blockIdx.x * blockDim.x + threadIdx.x] = mix(blockIdx.x * blockDim.x + threadIdx.x); }
#else
extern "C" void language(u64* out, int count) {
    for (int i = 0; i < count; ++i) out[i] = mix(u32(i));
}
#endif
