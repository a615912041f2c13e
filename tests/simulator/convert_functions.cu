// The functions of ptx/convert.cuh: FP32 in, packed and single FP16 and BF16 out, and FP16 back as FP32.
#include <deep_gemm/ptx/convert.cuh>

using namespace deep_gemm;

extern "C" __global__ void convert_functions(const float* in, uint32_t* packed_f16, uint32_t* packed_bf16,
                                             uint16_t* f16, float* back) {
    const float low = in[2 * threadIdx.x], high = in[2 * threadIdx.x + 1];
    packed_f16[threadIdx.x] = ptx::pack_f16(low, high);
    packed_bf16[threadIdx.x] = ptx::pack_bf16(low, high);
    f16[threadIdx.x] = ptx::to_f16(low);
    back[threadIdx.x] = ptx::from_f16(f16[threadIdx.x]);
}
