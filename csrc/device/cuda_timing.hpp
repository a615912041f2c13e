// Timing launches on a stream of the CUDA driver with events. The device's context must be current.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "device.hpp"
#include "driver_api.hpp"

namespace deep_gemm::driver {

class Event {
public:
    Event() { check(api().EventCreate(&handle_, 0), "cuEventCreate"); }
    ~Event() {
        if (handle_ != nullptr) api().EventDestroy(handle_);
    }
    Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record(Stream stream) const { check(api().EventRecord(handle_, stream), "cuEventRecord"); }
    void wait() const { check(api().EventSynchronize(handle_), "cuEventSynchronize"); }
    double microseconds_since(const Event& start) const {
        float milliseconds = 0;
        check(api().EventElapsedTime(&milliseconds, start.handle_, handle_), "cuEventElapsedTime");
        return milliseconds * 1e3;
    }

private:
    EventHandle handle_ = nullptr;
};

inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// See Device::time_launches.
inline std::vector<double> time_launches(Stream stream, std::span<const std::function<void()>> launches,
                                         const TimingOptions& options) {
    // The host must stay ahead of the GPU, or an interval would contain the time that preparing a launch takes. These
    // writes keep the GPU busy for the first half millisecond; each later one covers the launch that follows it.
    constexpr int kHeadStart = 16;
    const auto flush = [&] {
        check(api().MemsetD32Async(reinterpret_cast<uint64_t>(options.flush), 0, options.flush_bytes / 4, stream),
              "cuMemsetD32Async");
    };
    for (int i = 0; i < kHeadStart; ++i) flush();
    const size_t count = static_cast<size_t>(options.rounds) * launches.size();
    std::vector<Event> starts(count), ends(count);
    for (size_t i = 0; i < count; ++i) {
        flush();
        starts[i].record(stream);
        launches[i % launches.size()]();
        ends[i].record(stream);
    }
    ends.back().wait();
    std::vector<double> medians;
    for (size_t launch = 0; launch < launches.size(); ++launch) {
        std::vector<double> times;
        for (size_t i = launch; i < count; i += launches.size()) times.push_back(ends[i].microseconds_since(starts[i]));
        medians.push_back(median(std::move(times)));
    }
    return medians;
}

}  // namespace deep_gemm::driver
