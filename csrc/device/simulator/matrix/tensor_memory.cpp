// tcgen05: tensor memory and the matrix unit of SM100. Not there yet: each instruction is an error that says so.
#include "../core/execute.hpp"

namespace deep_gemm::simulator {

void add_tensor_memory(DecodeTable& table) {
    table["tcgen05"] = [](Decoder& decoder) { decoder.error("tcgen05 (tensor memory) is not simulated yet"); };
}

}  // namespace deep_gemm::simulator
