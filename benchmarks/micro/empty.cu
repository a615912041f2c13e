// Kernels that do nothing, with arguments of several sizes: what a launch costs, to the host and on the GPU. 1088 bytes
// are those of a GEMM.
template <int kBytes>
struct Argument {
    char bytes[kBytes];
};
#define EMPTY(n) extern "C" __global__ void empty_##n(const __grid_constant__ Argument<n> argument) {}
EMPTY(8)
EMPTY(1088)
EMPTY(4000)
