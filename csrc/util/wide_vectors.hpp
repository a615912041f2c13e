// For the few loops that take most of the simulator's time: compiled for wider vectors too, of which the loader
// chooses.
#pragma once

#if defined(__x86_64__) && defined(__clang__)  // which knows no `optimize`
#define DEEP_GEMM_WIDE_VECTORS __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#elif defined(__x86_64__)
#define DEEP_GEMM_WIDE_VECTORS \
    __attribute__((optimize("O3"), target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define DEEP_GEMM_WIDE_VECTORS
#endif
