// Two rounds through one stage: warp 0 fills it again while warp 1 may still read what the first round has left.
#ifndef FIXED
#define FIXED 0
#endif

extern "C" __global__ void early_refill(const float* in, float* out) {
    __shared__ float stage[32];
    const int lane = threadIdx.x % 32;
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x < 32) stage[lane] = in[32 * round + lane];
        __syncthreads();
        if (threadIdx.x >= 32) out[32 * round + lane] = stage[31 - lane];
        if (FIXED) __syncthreads();
    }
}
