// Torch tensors, reduced to what the runtime needs: pointer, extents, strides.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <deep_gemm/config.cuh>

#include <string>

#include "../device/device.hpp"
#include "../util/require.hpp"

namespace deep_gemm {

using tvm::ffi::TensorView;

// What errors print of tensors; dtypes as torch names them. Printed when an error is made, never before: a call that is
// right makes no text.
struct DtypeText {
    DLDataType type;
};
struct ShapeText {
    const TensorView& tensor;
};
struct StridesText {
    const TensorView& tensor;
};

inline DtypeText describe(DLDataType type) { return {type}; }
inline ShapeText describe_shape(const TensorView& tensor) { return {tensor}; }
inline StridesText describe_strides(const TensorView& tensor) { return {tensor}; }

inline std::ostream& operator<<(std::ostream& out, DtypeText text) {
    const int bits = text.type.bits;
    switch (text.type.code) {
        case kDLInt:
            return out << "int" << bits;
        case kDLUInt:
            return out << "uint" << bits;
        case kDLFloat:
            return out << "float" << bits;
        case kDLBfloat:
            return out << "bfloat" << bits;
        case kDLComplex:
            return out << "complex" << bits;
        case kDLBool:
            return out << "bool";
        case kDLFloat8_e4m3fn:
            return out << "float8_e4m3fn";
        case kDLFloat8_e4m3fnuz:
            return out << "float8_e4m3fnuz";
        case kDLFloat8_e5m2:
            return out << "float8_e5m2";
        case kDLFloat8_e5m2fnuz:
            return out << "float8_e5m2fnuz";
        case kDLFloat8_e8m0fnu:
            return out << "float8_e8m0fnu";
        case kDLFloat4_e2m1fn:
            return out << "float4_e2m1fn" << (text.type.lanes == 2 ? "_x2" : "");
        default:
            return out << "DLPack type " << static_cast<int>(text.type.code) << " of " << bits << " bits";
    }
}

inline std::ostream& operator<<(std::ostream& out, const ShapeText& text) {
    out << "[";
    for (int i = 0; i < text.tensor.ndim(); ++i) out << (i ? ", " : "") << text.tensor.size(i);
    return out << "]";
}

inline std::ostream& operator<<(std::ostream& out, const StridesText& text) {
    out << "(";
    for (int i = 0; i < text.tensor.ndim(); ++i) out << (i ? ", " : "") << text.tensor.stride(i);
    return out << ")";
}

inline bool is_dtype(DLDataType type, uint8_t code, uint8_t bits) {
    return type.code == code && type.bits == bits && type.lanes == 1;
}
inline bool is_fp32(DLDataType type) { return is_dtype(type, kDLFloat, 32); }
inline bool is_int32(DLDataType type) { return is_dtype(type, kDLInt, 32); }
inline bool is_bf16(DLDataType type) { return is_dtype(type, kDLBfloat, 16); }
inline bool is_e4m3(DLDataType type) { return is_dtype(type, kDLFloat8_e4m3fn, 8); }
inline bool is_e8m0(DLDataType type) { return is_dtype(type, kDLFloat8_e8m0fnu, 8); }

// A warm call reads a few dozen of these; TensorView's own size() and stride() are calls with a check of the index.
inline int64_t size_of(const TensorView& tensor, int i) { return tensor.shape().data()[i]; }
inline int64_t stride_of(const TensorView& tensor, int i) { return tensor.strides().data()[i]; }

inline char* data_of(const TensorView& tensor) { return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset(); }

/// Bytes from a tensor's first element to its last, both included.
inline size_t extent_bytes(const TensorView& tensor) {
    int64_t last = 0;
    for (int i = 0; i < tensor.ndim(); ++i) {
        if (size_of(tensor, i) == 0) return 0;
        last += (size_of(tensor, i) - 1) * stride_of(tensor, i);
    }
    return static_cast<size_t>((last + 1) * tensor.dtype().bits / 8);
}

inline DeviceId device_id_of(const TensorView& tensor, const char* name) {
    const DLDevice device = tensor.device();
    require_type(device.device_type == kDLCPU || device.device_type == kDLCUDA, name,
                 " must be on a CPU or CUDA device, but is on DLPack device type ",
                 static_cast<int>(device.device_type));
    const bool simulated = device.device_type == kDLCPU;
    return {.simulated = simulated, .index = simulated ? 0 : device.device_id};
}

struct DeviceText {
    DeviceId id;
};
inline DeviceText describe(DeviceId id) { return {id}; }
inline std::ostream& operator<<(std::ostream& out, DeviceText text) {
    return text.id.simulated ? out << "cpu" : out << "cuda:" << text.id.index;
}

inline void require_device(const TensorView& tensor, const char* name, DeviceId wanted, const char* like) {
    const DeviceId id = device_id_of(tensor, name);
    require(id == wanted, name, " is on ", describe(id), " but ", like, " is on ", describe(wanted));
}

inline int32_t to_int32(int64_t value, const char* what) {
    require(value >= 0 && value < (int64_t{1} << 31), what, " is ", value, ", which does not fit 32 bits");
    return static_cast<int32_t>(value);
}

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// A matrix, or a batch of equally shaped ones, with the last dimension named `cols`.
struct Matrix {
    char* data = nullptr;
    int64_t groups = 1, rows = 0, cols = 0;
    int64_t group_stride = 0, row_stride = 0, col_stride = 1;  // elements
    size_t bytes = 0;                                          // first to last element

    /// A dimension of one element may carry any stride; give it the one that a packed tensor would have.
    void normalise() {
        if (cols == 1) col_stride = 1;
        if (rows == 1) row_stride = cols;
        if (groups == 1) group_stride = rows * row_stride;
    }
};

/// Of an operand [rows, K].
inline bool is_k_major(const Matrix& matrix) { return matrix.col_stride == 1; }

/// `transposed`: the last two dimensions are cols and rows, not rows and cols.
/// `shape` is what was wanted, in anything that prints.
template <typename Shape>
Matrix matrix_of(const TensorView& tensor, const char* name, bool grouped, const Shape& shape,
                 bool transposed = false) {
    const int wanted = grouped ? 3 : 2;
    require(tensor.ndim() == wanted, name, " must be ", shape, ", but has shape ", describe_shape(tensor));
    const int rows = wanted - 2 + (transposed ? 1 : 0), cols = wanted - 1 - (transposed ? 1 : 0);
    Matrix m{.data = data_of(tensor),
             .groups = grouped ? size_of(tensor, 0) : 1,
             .rows = size_of(tensor, rows),
             .cols = size_of(tensor, cols),
             .group_stride = grouped ? stride_of(tensor, 0) : 0,
             .row_stride = stride_of(tensor, rows),
             .col_stride = stride_of(tensor, cols),
             .bytes = extent_bytes(tensor)};
    m.normalise();
    return m;
}

}  // namespace deep_gemm
