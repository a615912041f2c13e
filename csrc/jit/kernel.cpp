#include "kernel.hpp"

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "../util/files.hpp"
#include "../util/interrupt.hpp"
#include "../util/process.hpp"
#include "../util/require.hpp"
#include "cache.hpp"
#include "compile.hpp"
#include "settings.hpp"

namespace deep_gemm::jit {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Makes each value once: threads that ask for the same key wait for the first of them. A failure is not kept.
template <typename Key, typename Value>
class OnceMap {
public:
    template <typename Make>
    Value get(const Key& key, Make&& make) {
        std::shared_ptr<Slot> slot;
        {
            const std::lock_guard guard(mutex_);
            auto& known = slots_[key];
            if (!known) known = std::make_shared<Slot>();
            slot = known;
        }
        const auto guard = lock_interruptibly(slot->mutex);
        if (slot->made) return slot->value;
        auto [value, keep] = make();
        slot->made = keep;
        if (keep) slot->value = value;
        return value;
    }

private:
    struct Slot {
        std::timed_mutex mutex;
        bool made = false;
        Value value{};
    };
    std::mutex mutex_;
    std::map<Key, std::shared_ptr<Slot>> slots_;
};

struct Counters {
    std::mutex mutex;
    Statistics counts;
};

// Never destroyed: threads may still be compiling while the process ends.
Counters& counters() {
    static auto& kCounters = *new Counters;
    return kCounters;
}

void count(int64_t Statistics::* what, double compile_seconds = 0.0) {
    const std::lock_guard guard(counters().mutex);
    ++(counters().counts.*what);
    counters().counts.compile_seconds += compile_seconds;
}

/// DG_JIT_DUMP_SASS: the machine code as text, beside the image, by a toolkit's nvdisasm.
void dump_sass(const CacheEntry& entry) {
    const std::string directory = DiskCache::get().directory_of(entry);
    if (!settings().dump_sass || entry.output != Output::cubin || directory.empty()) return;
    const std::string path = directory + "/kernel.sass";
    if (is_file(path)) return;
    std::string nvdisasm = "nvdisasm";
    const size_t slash = settings().nvcc_compiler.rfind('/');
    if (slash != std::string::npos) {
        const std::string beside = settings().nvcc_compiler.substr(0, slash + 1) + nvdisasm;
        if (is_file(beside)) nvdisasm = beside;
    }
    const ProcessResult result = run_process({nvdisasm, directory + "/kernel.cubin"});
    const std::string problem = result.succeeded ? write_file(path, result.output) : nvdisasm + " " + result.ending;
    if (!problem.empty())
        std::fprintf(stderr, "deep_gemm: DG_JIT_DUMP_SASS: no %s: %s (nvdisasm comes with the CUDA toolkit)\n",
                     path.c_str(), problem.c_str());
}

/// DG_JIT_DEBUG.
void warn_of_hidden_waits(const std::string& name, const ResourceUse& resources) {
    if (settings().debug && !resources.hidden_waits.empty())
        std::fprintf(stderr, "deep_gemm: %s waits where its source does not: %s\n", name.c_str(),
                     resources.hidden_waits.c_str());
}

struct Image {
    std::string bytes;
    bool on_disk;
};

/// Who wants an image: a call that needs it now, or who compiles beforehand.
enum class Wanted : uint8_t { by_call, beforehand };

Image find_or_compile(const KernelSource& source, const CacheEntry& entry, Wanted wanted) {
    DiskCache& cache = DiskCache::get();
    const auto start = Clock::now();
    const auto found = [&](CachedImage& hit) {
        warn_of_hidden_waits(source.name, hit.resources);
        check_resources(source.name, hit.resources);
        count(&Statistics::found_on_disk);
        if (settings().print_load_time || settings().debug)
            std::fprintf(stderr, "deep_gemm: %s for %s read from %s in %.1f ms\n", source.name.c_str(),
                         entry.target.c_str(), cache.directory_of(entry).c_str(), seconds_since(start) * 1e3);
        return Image{std::move(hit.image), true};
    };
    if (auto hit = cache.find(entry, /*locked=*/false)) return found(*hit);
    require_runtime(wanted == Wanted::beforehand || !settings().refuse, source.name, " for ", entry.target,
                    " is not in the cache (",
                    settings().cache_dir.empty() ? "there is none" : settings().cache_dir.c_str(),
                    "), and DG_JIT_REFUSE=1 says not to compile it now: compile it beforehand, by `python -m deep_gemm "
                    "precompile` or by this call under deep_gemm.jit.record");
    const DiskCache::Lock lock(cache, entry);
    // Another process may have finished it while this one waited for the lock.
    if (auto hit = cache.find(entry, /*locked=*/true)) return found(*hit);
    const auto compile_start = Clock::now();
    Compiled compiled = compile({source, entry.target, entry.output, settings().dump_ptx});
    const double seconds = seconds_since(compile_start);
    count(&Statistics::compiled, seconds);
    warn_of_hidden_waits(source.name, compiled.resources);
    check_resources(source.name, compiled.resources);
    const bool stored = cache.store(entry, source.text, compiled, seconds);
    if (stored) count(&Statistics::stored);
    if (settings().debug)
        std::fprintf(stderr, "deep_gemm: %s for %s compiled in %.0f ms (%d registers, %d bytes spilled)%s%s\n",
                     source.name.c_str(), entry.target.c_str(), seconds * 1e3, compiled.resources.registers,
                     compiled.resources.spill_bytes, stored ? ", kept in " : "",
                     stored ? cache.directory_of(entry).c_str() : "");
    return {std::move(compiled.image), stored};
}

std::string image_of(const KernelSource& source, const CacheEntry& entry, Wanted wanted) {
    // Images that the disk did not take stay here; others are read again by whoever asks again.
    static auto& kImages = *new OnceMap<std::string, std::shared_ptr<const std::string>>;
    const auto image = kImages.get(entry.key, [&] {
        Image made = find_or_compile(source, entry, wanted);
        if (made.on_disk) dump_sass(entry);
        return std::pair{std::make_shared<const std::string>(std::move(made.bytes)), !made.on_disk};
    });
    return *image;
}

CacheEntry entry_of(const KernelSource& source, const std::string& target, Output output) {
    return {source.name, cache_key(source, target, output), target, output};
}

}  // namespace

const Kernel* get_kernel(Device& device, const KernelSource& source, uint32_t smem_bytes) {
    return get_kernel(device, source, smem_bytes, device.facts().target);
}

const Kernel* get_kernel(Device& device, const KernelSource& source, uint32_t smem_bytes, const std::string& target) {
    using Key = std::tuple<Device*, uint32_t, std::string>;
    static auto& kKernels = *new OnceMap<Key, const Kernel*>;
    if (const Kernel* noted = device.note(source.name, source.text, target)) return noted;
    const CacheEntry entry = entry_of(source, target, device.facts().output);
    return kKernels.get({&device, smem_bytes, entry.key}, [&] {
        const std::string image = image_of(source, entry, Wanted::by_call);
        const auto start = Clock::now();
        const Kernel* kernel = device.load(image, source.name.c_str(), smem_bytes);
        count(&Statistics::loaded);
        if (settings().print_load_time)
            std::fprintf(stderr, "deep_gemm: %s loaded on %s in %.1f ms\n", source.name.c_str(),
                         device.facts().name.c_str(), seconds_since(start) * 1e3);
        return std::pair{kernel, true};
    });
}

std::string compile_to_image(const KernelSource& source, const std::string& target, Output output) {
    return image_of(source, entry_of(source, target, output), Wanted::beforehand);
}

Statistics statistics() {
    const std::lock_guard guard(counters().mutex);
    return counters().counts;
}

}  // namespace deep_gemm::jit
