// A call of a quantise kernel: what it is by its tensors, and where they lie.
#pragma once

#include <deep_gemm/quantize/config.cuh>

#include <array>

#include "../api/call/tensors.hpp"
#include "../util/ffi.hpp"

namespace deep_gemm {

struct QuantizeTensors {
    const TensorView& x;
    const OptionalTensor& row_scale;
    const OptionalTensor& layout;
    const TensorView& s;
    const TensorView& q;
    const OptionalTensor& zeros;
    const OptionalTensor& sums;   // of rows' codes
    const OptionalTensor& whole;  // the scale of the whole tensor, beside those of E4M3
};

/// What tensors do not tell, as deep_gemm/_quantize.py numbers it.
struct QuantizeOptions {
    explicit QuantizeOptions(const ffi::Integers& numbers);

    Element output;
    ScaleShare share;
    int32_t group;
    ScaleForm scales;
    GateKind gate;
    bool interleaved;
    RowLayout layout;
    int32_t expected_m;
    GateNumbers numbers;  // of the gate
};

struct QuantizeCall {
    DeviceId device;
    QuantizeConfig config;
    QuantizeParams params;
    int64_t matrices = 1;
    int64_t likely_rows = 0;  // of a matrix
    std::array<Extent, 8> extents;
};

/// Refuses what cannot be right in a sentence.
QuantizeCall check_quantize(const QuantizeTensors& tensors, const QuantizeOptions& options);

void run_quantize(QuantizeCall& call);

}  // namespace deep_gemm
