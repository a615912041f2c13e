// The functions of convert/zeros.cuh, and of convert/weights.cuh the one whose codes include -8: eight codes of a word.
#include <deep_gemm/convert/weights.cuh>
#include <deep_gemm/convert/zeros.cuh>

using namespace deep_gemm;

extern "C" __global__ void subtract_functions(const uint32_t* codes, const uint32_t* for_s8, const uint32_t* for_e4m3,
                                              uint2* s8, uint2* e4m3, uint2* twos_complement) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, word = codes[i];
    const SubtractZero<Element::s8> to_s8(for_s8[i]);
    const SubtractZero<Element::e4m3> to_e4m3(for_e4m3[i]);
    s8[i] = make_uint2(to_s8.run(lower_codes(word)), to_s8.run(lower_codes(word >> 4)));
    e4m3[i] = make_uint2(to_e4m3.run(lower_codes(word)), to_e4m3.run(lower_codes(word >> 4)));
    Convert<Element::s4, Element::e4m3>::run(word, twos_complement[i].x, twos_complement[i].y);
}
