// A tensor in the caller's memory, as DLPack describes it.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace deep_gemm {

class TensorView {
public:
    TensorView() = default;  // of a record that is read yet
    /// The description must outlive this.
    explicit TensorView(const DLTensor& tensor) : tensor_(&tensor) {}

    char* data() const { return static_cast<char*>(tensor_->data) + tensor_->byte_offset; }
    DLDevice device() const { return tensor_->device; }
    DLDataType dtype() const { return tensor_->dtype; }
    int ndim() const { return tensor_->ndim; }
    int64_t size(int dimension) const { return tensor_->shape[dimension]; }
    int64_t stride(int dimension) const { return tensor_->strides[dimension]; }  // in elements
    /// Of a tensor without gaps.
    size_t contiguous_bytes() const {
        size_t bits = size_t{tensor_->dtype.bits} * tensor_->dtype.lanes;
        for (int i = 0; i < ndim(); ++i) bits *= static_cast<size_t>(size(i));
        return (bits + 7) / 8;
    }

private:
    const DLTensor* tensor_ = nullptr;
};

using OptionalTensor = std::optional<TensorView>;

}  // namespace deep_gemm
