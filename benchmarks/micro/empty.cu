// Kernels that do nothing, with arguments of several sizes: what a launch costs, to the host and on the GPU.
template <int kBytes>
struct Argument {
    char bytes[kBytes];
};
#define EMPTY(n) extern "C" __global__ void empty_##n(const __grid_constant__ Argument<n> argument) {}
EMPTY(8)
EMPTY(256)
EMPTY(1024)
EMPTY(4000)
