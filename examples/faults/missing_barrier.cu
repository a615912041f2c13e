// Warp 1 reads what warp 0 writes, and nothing orders the two.
#ifndef FIXED
#define FIXED 0
#endif

extern "C" __global__ void missing_barrier(const float* in, float* out) {
    __shared__ float values[64];
    values[threadIdx.x] = in[threadIdx.x];
    if (FIXED) __syncthreads();
    out[threadIdx.x] = values[threadIdx.x % 32];
}
