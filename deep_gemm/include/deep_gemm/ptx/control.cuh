// Threads, warps and the grid: who runs, with how many registers, and after whom.
#pragma once

#include <deep_gemm/types.cuh>

namespace deep_gemm::ptx {

/// %laneid-independent election: true in exactly one lane of a converged warp.
DG_DEVICE bool elect_one() {
    uint32_t elected;
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(elected)::"memory");
    return elected != 0;
}

/// %laneid, read where it is asked for: what is computed from it is not kept in registers across loops.
DG_DEVICE int32_t lane() {
    int32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/// redux.sync: a value that all lanes of the warp hold, as one that ptxas knows to be equal in all of them.
DG_DEVICE int32_t uniform(int32_t value) {
    int32_t same;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(value));
    return same;
}

/// The compiler knows nothing of this value any more: what is computed from it is not moved out of loops. No
/// instruction.
DG_DEVICE void forget(int32_t& value) { asm volatile("" : "+r"(value)); }

/// `address`, but only when what `loaded` was made of has come. One instruction: blockIdx.y is 0, which ptxas does not
/// know.
DG_DEVICE uint32_t when_loaded(uint32_t address, uint32_t loaded) { return address | (loaded & blockIdx.y); }

/// setmaxnreg.inc: a warpgroup takes registers from the block's pool; waits until they are free.
template <int kRegisters>
DG_DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// setmaxnreg.dec: a warpgroup gives registers back.
template <int kRegisters>
DG_DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// bar.sync: wait until `threads` have come to this named barrier (1 to 15; 0 is that of __syncthreads), these among
/// them.
DG_DEVICE void named_barrier_wait(int32_t barrier, int32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// bar.arrive: come, and go on.
DG_DEVICE void named_barrier_arrive(int32_t barrier, int32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// griddepcontrol.wait: everything that the preceding kernel wrote is visible afterwards. Before sm_90 it is when a
/// kernel starts.
DG_DEVICE void wait_for_previous_grid() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// %clock64: cycles of this SM.
DG_DEVICE int64_t clock_cycles() {
    int64_t cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
    return cycles;
}

/// nanosleep: for roughly this long, or not at all.
DG_DEVICE void sleep_nanoseconds(uint32_t nanoseconds) { asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds)); }

}  // namespace deep_gemm::ptx
