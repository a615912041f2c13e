#include "overlap.hpp"

#include <algorithm>
#include <array>

namespace deep_gemm {
namespace {

/// Bytes of a tensor: runs of equal length, in up to three nested dimensions, the innermost first.
class ByteRuns {
public:
    explicit ByteRuns(const TensorView& tensor)
        : begin_(reinterpret_cast<int64_t>(tensor.data())), run_(tensor.dtype().bits * tensor.dtype().lanes / 8) {
        std::array<Dimension, kMaxDimensions> found = {};
        int count = 0;
        for (int i = 0; i < tensor.ndim() && count < kMaxDimensions; ++i)
            if (tensor.size(i) > 1 && tensor.stride(i) > 0) found[count++] = {tensor.size(i), tensor.stride(i) * run_};
        std::sort(found.begin(), found.begin() + count,
                  [](const Dimension& x, const Dimension& y) { return x.stride < y.stride; });
        for (int i = 0; i < count; ++i) add(found[i]);
    }

    /// Bytes from the first to the last.
    int64_t begin() const { return begin_; }
    int64_t extent() const {
        int64_t last = 0;
        for (int i = 0; i < count_; ++i) last += (dimensions_[i].size - 1) * dimensions_[i].stride;
        return last + run_;
    }

    bool overlap(const ByteRuns& other) const {
        if (count_ == 1 && other.count_ == 1 && dimensions_[0].stride == other.dimensions_[0].stride)
            return overlap_at_one_pitch(other);
        Walk mine(*this), others(other);
        while (!mine.done && !others.done) {
            if (mine.at + run_ <= others.at)
                mine.next();
            else if (others.at + other.run_ <= mine.at)
                others.next();
            else
                return true;
        }
        return false;
    }

private:
    struct Dimension {
        int64_t size = 0, stride = 0;
    };
    static constexpr int kMaxDimensions = 3;

    /// Strides come in ascending order.
    void add(const Dimension& dimension) {
        if (dimension.stride < extent()) {  // bytes that several elements have
            run_ = extent() + (dimension.size - 1) * dimension.stride;
            count_ = 0;
        } else if (count_ == 0 && dimension.stride == run_) {
            run_ *= dimension.size;
        } else if (count_ > 0 && dimension.stride == dimensions_[count_ - 1].size * dimensions_[count_ - 1].stride) {
            dimensions_[count_ - 1].size *= dimension.size;
        } else {
            dimensions_[count_++] = dimension;
        }
    }

    /// Rows of two matrices that lie side by side: does any row begin within the other's, some rows further on?
    bool overlap_at_one_pitch(const ByteRuns& other) const {
        const int64_t pitch = dimensions_[0].stride, distance = other.begin_ - begin_;
        // Row i of this one and row j of the other are `distance + (j - i) pitch` apart. The least j - i that brings
        // the other's row behind the beginning of mine decides.
        const auto floor_div = [](int64_t x, int64_t y) { return x / y - (x % y < 0); };
        const int64_t first = std::max(floor_div(-other.run_ - distance, pitch) + 1, 1 - dimensions_[0].size);
        return first < other.dimensions_[0].size && distance + first * pitch < run_;
    }

    /// The runs in the order of memory.
    struct Walk {
        const ByteRuns& runs;
        int64_t at;
        std::array<int64_t, kMaxDimensions> index = {};
        bool done = false;

        explicit Walk(const ByteRuns& all) : runs(all), at(all.begin_) {}
        void next() {
            for (int i = 0; i < runs.count_; ++i) {
                const Dimension& dimension = runs.dimensions_[i];
                at += dimension.stride;
                if (++index[i] < dimension.size) return;
                at -= dimension.size * dimension.stride;
                index[i] = 0;
            }
            done = true;
        }
    };

    int64_t begin_, run_;
    int count_ = 0;
    std::array<Dimension, kMaxDimensions> dimensions_ = {};
};

}  // namespace

bool share_memory(const TensorView& x, const TensorView& y) {
    const int64_t x_bytes = static_cast<int64_t>(extent_bytes(x)), y_bytes = static_cast<int64_t>(extent_bytes(y));
    const int64_t x_begin = reinterpret_cast<int64_t>(x.data()), y_begin = reinterpret_cast<int64_t>(y.data());
    if (x_begin == 0 || y_begin == 0) return false;  // a shape without memory: other memory may lie as low (a heap)
    if (x_bytes == 0 || y_bytes == 0 || x_begin + x_bytes <= y_begin || y_begin + y_bytes <= x_begin) [[likely]]
        return false;
    return ByteRuns(x).overlap(ByteRuns(y));
}

void require_apart(const TensorView& d, const TensorView& other, const char* name) {
    require(!share_memory(d, other), "d shares memory with ", name,
            ", which is read while d is written: give d memory "
            "of its own");
}

void require_apart_or_same(const TensorView& d, const TensorView& c) {
    bool same = c.data() == d.data();
    for (int i = 0; i < d.ndim(); ++i) same = same && (d.size(i) <= 1 || c.stride(i) == d.stride(i));
    require(same || !share_memory(d, c),
            "c shares memory with d but is not d itself, whose elements it would read when "
            "they have been written: give c memory of its own, or pass d as c");
}

}  // namespace deep_gemm
