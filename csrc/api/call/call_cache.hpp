// Calls that come again with the same tensors: their launch lies ready.
//
// Checks, selection and the kernel's argument are functions of the arguments and of what `Generation` counts, of
// nothing else. So a call with equal arguments in the same generation needs none of them, only the launch on torch's
// stream of the moment.
#pragma once

#include <deep_gemm/params.cuh>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "../../util/ffi.hpp"
#include "call.hpp"
#include "generation.hpp"
#include "lender.hpp"

namespace deep_gemm {

/// All arguments of a call, as words, whatever they are: of each tensor its address, dtype, device, shape and strides.
/// Memory that is used again for a tensor of another shape makes another key.
class CallKey {
public:
    CallKey() = default;
    explicit CallKey(const ffi::Given& given) {
        words_[count_++] = reinterpret_cast<uintptr_t>(given.function);
        uint64_t& kinds = words_[count_++] = 0;  // of each argument: None, where there is nothing else, adds no word
        for (int32_t i = 0; i < given.count; ++i) kinds = kinds << 2 | add(given, i);
    }
    CallKey(const CallKey& other) { *this = other; }
    CallKey& operator=(const CallKey& other) {
        count_ = other.count_, hash_ = other.hash_, complete_ = other.complete_;
        std::copy_n(other.words_, count_, words_);
        return *this;
    }

    /// Whether the words say everything. A call of which they do not is refused by its checks, or at least remembered
    /// by nobody.
    bool complete() const { return complete_; }
    uint64_t hash() const { return hash_; }
    bool operator==(const CallKey& other) const {
        return count_ == other.count_ && std::memcmp(words_, other.words_, count_ * sizeof(uint64_t)) == 0;
    }

private:
    enum Kind : uint64_t { none, number, tensor, numbers };
    static constexpr int kMaxDimensions = 3;
    static constexpr size_t kTensorWords = 3 + 2 * kMaxDimensions;
    static constexpr size_t kMaxWords = 14 * kTensorWords + 40;

    Kind add(const ffi::Given& given, int32_t index) {
        const int32_t type = given[index].type_index;
        if (count_ + std::max<size_t>(kTensorWords, kMaxNumbers) > kMaxWords) complete_ = false;
        if (type == kTVMFFINone || !complete_) return none;
        if (type == kTVMFFIInt || type == kTVMFFIBool) {
            words_[count_++] = static_cast<uint64_t>(given[index].v_int64);
            return number;
        }
        if (type == kTVMFFIDLTensorPtr || type == kTVMFFITensor) {
            add(ffi::take<TensorView>(given, index));
            return tensor;
        }
        if (type == kTVMFFIOpaquePtr) {
            const ffi::Output pair = ffi::take<ffi::Output>(given, index);
            add(pair.data), add(*pair.scales);
            if (pair.count) add(*pair.count);
            return numbers;
        }
        const std::optional<ffi::Integers> integers = ffi::integers_of(given, index);
        complete_ = integers.has_value();
        if (!complete_) return none;
        add(*integers);
        return numbers;
    }
    void add(const ffi::Integers& values) {
        if (values.size() > kMaxNumbers) {
            complete_ = false;
            return;
        }
        words_[count_++] = static_cast<uint64_t>(values.size());
        for (int64_t i = 0; i < values.size(); ++i) words_[count_++] = static_cast<uint64_t>(values[i]);
    }
    void add(const TensorView& tensor) {
        if (tensor.ndim() > kMaxDimensions) {
            complete_ = false;
            return;
        }
        const auto address = reinterpret_cast<uintptr_t>(tensor.data());
        const DLDataType type = tensor.dtype();
        const DLDevice device = tensor.device();
        words_[count_++] = address;
        words_[count_++] = uint64_t{type.code} << 56 | uint64_t{type.bits} << 48 | uint64_t{type.lanes} << 32 |
                           static_cast<uint32_t>(tensor.ndim());
        words_[count_++] =
            uint64_t{static_cast<uint32_t>(device.device_type)} << 32 | static_cast<uint32_t>(device.device_id);
        for (int i = 0; i < tensor.ndim(); ++i) {
            words_[count_++] = static_cast<uint64_t>(tensor.size(i));
            words_[count_++] = static_cast<uint64_t>(tensor.stride(i));
        }
        // Addresses and first extents tell nearly all calls apart. The hash only chooses a slot, so that is enough.
        hash_ =
            (hash_ ^ (address + (tensor.ndim() > 0 ? static_cast<uint64_t>(tensor.size(0)) : 0))) * 0x9e3779b97f4a7c15;
        hash_ ^= hash_ >> 32;
    }

    static constexpr int64_t kMaxNumbers = 12;  // of a sequence
    size_t count_ = 0;
    uint64_t hash_ = 0;
    bool complete_ = true;
    uint64_t words_[kMaxWords];
};

/// A launch with nothing left to decide but the stream.
struct CachedCall {
    Device* device;
    const Kernel* kernel;  // like the device, lives as long as the process
    LaunchShape shape;
    size_t params_bytes;  // as the kernel takes them
    GemmParamsWithSteps params;
    CallExtents extents;

    void launch() const {
        device->launch(*kernel, shape, &params, params_bytes, current_stream(device->id()), extents);
    }
};

/// The calls that this thread made more than once. No lock: another thread has its own, and finds out about changes by
/// the generation.
class CallCache {
public:
    static CallCache& of_thread() {
        thread_local const auto calls = std::make_unique<CallCache>();
        return *calls;
    }

    /// Null where the call must be made ready. Stays until the next `remember`.
    const CachedCall* find(const CallKey& key, uint64_t generation) const {
        const Kept* kept = kept_[slot(key)].get();
        if (kept == nullptr || kept->generation != generation || !(kept->key == key) || !key.complete()) return nullptr;
        return &kept->call;
    }

    /// Keeps a call that comes for the second time, in the place of another. One that comes for the first time leaves
    /// its hash only: tensors that are new in each call then cost little and push nothing out.
    void remember(const CallKey& key, uint64_t generation, const CachedCall& call) {
        const size_t index = slot(key);
        if (seen_[index] != key.hash()) {
            seen_[index] = key.hash();
            return;
        }
        std::unique_ptr<Kept>& kept = kept_[index];
        if (kept == nullptr) kept = std::make_unique<Kept>();
        *kept = {.generation = key.complete() ? generation : Generation::kNone, .key = key, .call = call};
    }

private:
    struct Kept {
        uint64_t generation;
        CallKey key;
        CachedCall call;
    };

    static size_t slot(const CallKey& key) { return key.hash() * 0x9e3779b97f4a7c15 >> (64 - kSlotBits); }

    // Enough for the calls of a large model's step, at 1.7 KB each.
    static constexpr int kSlotBits = 10;
    std::array<uint64_t, 1 << kSlotBits> seen_ = {};
    std::array<std::unique_ptr<Kept>, 1 << kSlotBits> kept_ = {};
};

}  // namespace deep_gemm
