// A GPU that is not there: calls on it are checked and planned, and the kernels that they would load are noted.
//
// For compiling beforehand. While a thread has one, its calls on CPU tensors are calls on this GPU: values of tensors
// are neither read nor written, so memory that nobody touched will do.
#pragma once

#include <deque>
#include <set>
#include <tuple>

#include "device.hpp"

namespace deep_gemm {

class Recorder final : public Device {
public:
    struct Noted {
        std::string name, text, target;
        auto operator<=>(const Noted&) const = default;
    };

    explicit Recorder(DeviceFacts facts) : Device({.simulated = true, .recorded = true}, std::move(facts)) {}

    /// Null where the thread's calls run.
    static Recorder* of_thread() { return current_; }
    /// From now on, until the thread chooses another or none.
    static void choose_for_thread(Recorder* recorder) { current_ = recorder, ++choices_; }
    /// How often this thread chose: what it remembers of a recording goes with that.
    static uint64_t choices_of_thread() { return choices_; }

    /// The kernel that was noted first of those that were not taken yet.
    bool take(Noted& noted);

    const Kernel* note(const std::string& name, const std::string& text, const std::string& target) override;
    EncodedTensorMap encode(const TensorMapSpec& spec) const override;
    const Kernel* load(const std::string&, const char*, uint32_t) override;
    void read(void*, const void*, size_t, void*) override;
    int max_clusters(const Kernel&, const LaunchShape& shape) override;

private:
    void put(const Kernel&, const LaunchShape&, const void*, size_t, void*, std::span<const Extent>) override {}

    static inline thread_local Recorder* current_ = nullptr;
    static inline thread_local uint64_t choices_ = 0;
    std::set<Noted> known_;
    std::deque<const Noted*> untaken_;
};

/// What CPU tensors of this thread's calls run on.
inline DeviceId device_of_cpu_tensors() { return {.simulated = true, .recorded = Recorder::of_thread() != nullptr}; }

}  // namespace deep_gemm
