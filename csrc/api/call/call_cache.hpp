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
#include <span>

#include "../../util/ffi.hpp"
#include "call.hpp"
#include "generation.hpp"
#include "lender.hpp"

namespace deep_gemm {

/// All arguments of a call that have names, as words, whatever they are: of each tensor its address, dtype, device,
/// shape and strides. Memory that is used again for a tensor of another shape makes another key.
class CallKey {
public:
    CallKey() = default;
    explicit CallKey(const ffi::Given& given) {
        uint64_t& present = words_[count_++] = 0;  // of each argument, whether it is there; what is not adds no word
        for (size_t i = 0; i < given.named.size(); ++i) {
            const TVMFFIAny argument = given[static_cast<int32_t>(i)];
            if (argument.type_index == kTVMFFINone) continue;
            present |= uint64_t{1} << i;
            complete_ = complete_ && count_ + kMaxWordsOfOne <= kMaxWords &&
                        add(given, static_cast<int32_t>(i), argument, given.named[i].kind);
            if (!complete_) return;
        }
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
    std::span<const uint64_t> words() const { return {words_, count_}; }
    bool operator==(const CallKey& other) const {
        return count_ == other.count_ && std::memcmp(words_, other.words_, count_ * sizeof(uint64_t)) == 0;
    }

private:
    static constexpr int kMaxDimensions = 4;
    static constexpr int64_t kMaxNumbers = 12;  // of a sequence
    static constexpr size_t kTensorWords = 3 + 2 * kMaxDimensions, kMaxWordsOfOne = kMaxNumbers + 1;
    static constexpr size_t kMaxWords = 166;  // no call says more
    static_assert(kTensorWords <= kMaxWordsOfOne);

    /// False where that is not possible, or the argument is of another kind than its name says.
    bool add(const ffi::Given& given, int32_t index, const TVMFFIAny& argument, ffi::ArgumentKind kind) {
        const int32_t type = argument.type_index;
        switch (kind) {
            case ffi::ArgumentKind::number:
                if (type != kTVMFFIInt && type != kTVMFFIBool) return false;
                words_[count_++] = static_cast<uint64_t>(argument.v_int64);
                return true;
            case ffi::ArgumentKind::tensor:
                return (type == kTVMFFIDLTensorPtr || type == kTVMFFITensor) &&
                       add(ffi::take<TensorView>(given, index));
            case ffi::ArgumentKind::numbers:
                const std::optional<ffi::Integers> integers = ffi::integers_of(given, index);
                return integers && add(*integers);
        }
        return false;
    }
    bool add(const ffi::Integers& values) {
        if (values.size() > kMaxNumbers) return false;
        words_[count_++] = static_cast<uint64_t>(values.size());
        for (int64_t i = 0; i < values.size(); ++i) words_[count_++] = static_cast<uint64_t>(values[i]);
        return true;
    }
    bool add(const TensorView& tensor) {
        if (tensor.ndim() > kMaxDimensions) return false;
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
        return true;
    }

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
