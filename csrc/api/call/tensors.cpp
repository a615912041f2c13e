#include "tensors.hpp"

#include <ostream>

#include "../../device/recorder.hpp"

namespace deep_gemm {
namespace {

struct DeviceText {
    DeviceId id;
};
DeviceText describe(DeviceId id) { return {id}; }
std::ostream& operator<<(std::ostream& out, DeviceText text) {
    return text.id.simulated ? out << "cpu" : out << "cuda:" << text.id.index;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, DtypeText text) {
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

std::ostream& operator<<(std::ostream& out, const ShapeText& text) {
    out << "[";
    for (int i = 0; i < text.tensor.ndim(); ++i) out << (i ? ", " : "") << text.tensor.size(i);
    return out << "]";
}

std::ostream& operator<<(std::ostream& out, const StridesText& text) {
    out << "(";
    for (int i = 0; i < text.tensor.ndim(); ++i) out << (i ? ", " : "") << text.tensor.stride(i);
    return out << ")";
}

size_t extent_bytes(const TensorView& tensor) {
    int64_t last = 0;
    for (int i = 0; i < tensor.ndim(); ++i) {
        if (tensor.size(i) == 0) return 0;
        last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    return static_cast<size_t>((last + 1) * tensor.dtype().bits / 8);
}

DeviceId device_id_of(const TensorView& tensor, const char* name) {
    const DLDevice device = tensor.device();
    require_type(device.device_type == kDLCPU || device.device_type == kDLCUDA, name,
                 " must be on a CPU or CUDA device, got DLPack device type ", static_cast<int>(device.device_type));
    return device.device_type == kDLCPU ? device_of_cpu_tensors() : DeviceId{.index = device.device_id};
}

void require_device(const TensorView& tensor, const char* name, DeviceId wanted, const char* like) {
    const DeviceId id = device_id_of(tensor, name);
    require(id == wanted, name, " is on ", describe(id), " but ", like, " is on ", describe(wanted));
}

int32_t to_int32(int64_t value, const char* what) {
    require(value >= 0 && value < (int64_t{1} << 31), what, " is ", value, ", which does not fit 32 bits");
    return static_cast<int32_t>(value);
}

Matrix matrix_of(const TensorView& tensor, const char* name, const Axes& axes, const Printed& shape) {
    require(tensor.ndim() == axes.count(), name, " must be ", shape, ", got shape ", describe_shape(tensor));
    const bool grouped = axes.group >= 0;
    Matrix m{.data = tensor.data(),
             .groups = grouped ? tensor.size(axes.group) : 1,
             .rows = tensor.size(axes.row),
             .cols = tensor.size(axes.col),
             .group_stride = grouped ? tensor.stride(axes.group) : 0,
             .row_stride = tensor.stride(axes.row),
             .col_stride = tensor.stride(axes.col),
             .bytes = extent_bytes(tensor)};
    m.normalise();
    return m;
}

}  // namespace deep_gemm
