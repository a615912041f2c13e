// A call of a quantise kernel: what it is by its tensors, and where they lie.
#pragma once

#include <deep_gemm/quantize/config.cuh>

#include <array>

#include "../api/call/record.hpp"
#include "../api/call/tensors.hpp"

namespace deep_gemm {

struct QuantizeRecord {
    TensorView x;
    OptionalTensor layout, row_scale;
    OptionalTensor whole;  // the scale of the whole tensor, beside those of E4M3
    // Written.
    TensorView q, s;
    OptionalTensor zeros, sums;  // sums of rows' codes
    // What tensors do not tell, as deep_gemm/_quantize.py numbers it.
    int64_t element = 0, share = 0, group = 0, scales = 0;
    int64_t rows = 0, expected_m = 0;
    int64_t gate = 0;
    bool interleaved = false;
    int64_t limit_bits = 0, alpha_bits = 0, up_shift_bits = 0;  // the gate's numbers
};

template <>
inline constexpr auto kFieldsOf<QuantizeRecord> = std::tuple{Field{"x", &QuantizeRecord::x},
                                                             Field{"layout", &QuantizeRecord::layout},
                                                             Field{"row_scale", &QuantizeRecord::row_scale},
                                                             Field{"whole", &QuantizeRecord::whole},
                                                             Field{"q", &QuantizeRecord::q},
                                                             Field{"s", &QuantizeRecord::s},
                                                             Field{"zeros", &QuantizeRecord::zeros},
                                                             Field{"sums", &QuantizeRecord::sums},
                                                             Field{"element", &QuantizeRecord::element},
                                                             Field{"share", &QuantizeRecord::share},
                                                             Field{"group", &QuantizeRecord::group},
                                                             Field{"scales", &QuantizeRecord::scales},
                                                             Field{"rows", &QuantizeRecord::rows},
                                                             Field{"expected_m", &QuantizeRecord::expected_m},
                                                             Field{"gate", &QuantizeRecord::gate},
                                                             Field{"interleaved", &QuantizeRecord::interleaved},
                                                             Field{"limit_bits", &QuantizeRecord::limit_bits},
                                                             Field{"alpha_bits", &QuantizeRecord::alpha_bits},
                                                             Field{"up_shift_bits", &QuantizeRecord::up_shift_bits}};

struct QuantizeCall {
    DeviceId device;
    QuantizeConfig config;
    QuantizeParams params;
    int64_t matrices = 1;
    int64_t likely_rows = 0;  // of a matrix
    std::array<Extent, 8> extents;
};

/// Refuses what cannot be right in a sentence.
QuantizeCall check_quantize(const QuantizeRecord& record);

/// Chooses what a warp or block has of it. How many blocks there are.
int64_t plan_quantize(QuantizeCall& call, int32_t sms);
void run_quantize(QuantizeCall& call);

/// The fields in braces, as source has them.
std::string config_text(const QuantizeConfig& config);

}  // namespace deep_gemm
