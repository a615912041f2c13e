// Torch tensors, reduced to what the runtime needs: pointer, extents, strides.
#pragma once

#include <deep_gemm/config.cuh>

#include <iosfwd>

#include "../../device/device.hpp"
#include "../../util/require.hpp"
#include "../../util/tensor_view.hpp"

namespace deep_gemm {

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

std::ostream& operator<<(std::ostream& out, DtypeText text);
std::ostream& operator<<(std::ostream& out, const ShapeText& text);
std::ostream& operator<<(std::ostream& out, const StridesText& text);

inline bool is_dtype(DLDataType type, uint8_t code, uint8_t bits) {
    return type.code == code && type.bits == bits && type.lanes == 1;
}
inline bool is_int32(DLDataType type) { return is_dtype(type, kDLInt, 32); }

/// Bytes from a tensor's first element to its last, both included.
size_t extent_bytes(const TensorView& tensor);

DeviceId device_id_of(const TensorView& tensor, const char* name);
void require_device(const TensorView& tensor, const char* name, DeviceId wanted, const char* like);

int32_t to_int32(int64_t value, const char* what);

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

/// Which dimension of a tensor is which of a matrix's; -1: there are no groups.
struct Axes {
    int group = -1, row = 0, col = 1;
    constexpr int count() const { return group < 0 ? 2 : 3; }
};

/// The last two dimensions, behind that of groups where there is one. `transposed`: they are cols and rows.
constexpr Axes last_axes(bool grouped, bool transposed = false) {
    const int first = grouped ? 1 : 0;
    return {.group = grouped ? 0 : -1, .row = first + (transposed ? 1 : 0), .col = first + (transposed ? 0 : 1)};
}

/// `shape` is what was wanted, in anything that prints.
Matrix matrix_of(const TensorView& tensor, const char* name, const Axes& axes, const Printed& shape);

inline Matrix matrix_of(const TensorView& tensor, const char* name, bool grouped, const Printed& shape,
                        bool transposed = false) {
    return matrix_of(tensor, name, last_axes(grouped, transposed), shape);
}

}  // namespace deep_gemm
