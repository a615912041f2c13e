// A kernel that does nothing, with an argument of a GEMM's size: what a launch costs the host.
struct Argument {
    char bytes[1088];
};
extern "C" __global__ void empty(const __grid_constant__ Argument argument) {}
