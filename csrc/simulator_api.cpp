// What deep_gemm/simulator.py calls: options of the CPU device, its reports, and runs of any PTX text. Bindings only.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <cstring>

#include "api/generation.hpp"
#include "device/simulator/simulator_device.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::Bytes;
using tvm::ffi::Map;
using tvm::ffi::String;

Map<String, Any> simulator_options() {
    const simulator::DeviceOptions options = simulator::device_options();
    Map<String, Any> values;
    values.Set("target", String(options.target));
    values.Set("num_sms", options.num_sms);
    values.Set("schedule", String(simulator::name(options.run.schedule)));
    values.Set("seed", static_cast<int64_t>(options.run.seed));
    values.Set("hazards", String(simulator::name(options.run.hazards)));
    values.Set("rules", String(simulator::name(options.run.rules)));
    values.Set("threads", options.run.threads);
    return values;
}

void set_simulator_options(const String& target, int64_t num_sms, const String& schedule, int64_t seed,
                           const String& hazards, const String& rules, int64_t threads) {
    simulator::DeviceOptions options;
    options.target = target;
    options.num_sms = static_cast<int>(num_sms);
    options.run.schedule = simulator::parse_schedule(schedule);
    options.run.seed = static_cast<uint64_t>(seed);
    options.run.hazards = simulator::parse_hazard_mode(hazards);
    options.run.rules = simulator::parse_rules(rules);
    options.run.threads = static_cast<int>(threads);
    simulator::set_device_options(options);
    Generation::advance();  // another target or number of SMs is another device
}

/// JSON list of {"kernel", "report"}, the newest launch last.
String simulator_reports() {
    std::string text = "[";
    for (const auto& [kernel, report] : simulator::reports())
        text += concat(text.size() > 1 ? ", " : "", "{\"kernel\": \"", kernel,
                       "\", \"report\": ", simulator::to_json(report), "}");
    return String(text + "]");
}

void clear_simulator_reports() { simulator::clear_reports(); }

void shape_of(const Array<int64_t>& given, uint32_t* shape) {
    require(given.size() <= 3, "a shape has at most three dimensions");
    for (size_t i = 0; i < given.size(); ++i) shape[i] = static_cast<uint32_t>(given[i]);
}

/// Run PTX text. `tensors` are the memory that it may touch, of which those with `writable` true it may write.
String simulator_run(const String& ptx, const String& entry, const Array<int64_t>& grid, const Array<int64_t>& block,
                     const Array<int64_t>& cluster, int64_t smem_bytes, const Bytes& params,
                     const Array<tvm::ffi::Tensor>& tensors, const Array<int64_t>& writable, const String& schedule,
                     int64_t seed, const String& hazards, const String& rules, int64_t threads) {
    require(tensors.size() == writable.size(), "each tensor needs a word on whether it may be written");
    std::vector<Extent> extents;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto& tensor = tensors[i];
        extents.push_back({tensor.data_ptr(),
                           (static_cast<size_t>(tensor.numel()) * tensor.dtype().bits * tensor.dtype().lanes + 7) / 8,
                           "tensor", writable[i] != 0});
    }
    simulator::Launch launch;
    const std::string entry_name = entry;
    launch.entry = entry_name.empty() ? nullptr : entry_name.c_str();
    shape_of(grid, launch.grid);
    shape_of(block, launch.block);
    shape_of(cluster, launch.cluster);
    launch.smem_bytes = static_cast<uint32_t>(smem_bytes);
    launch.params = params.data();
    launch.params_bytes = params.size();
    launch.extents = extents;
    simulator::Options options;
    options.schedule = simulator::parse_schedule(schedule);
    options.seed = static_cast<uint64_t>(seed);
    options.hazards = simulator::parse_hazard_mode(hazards);
    options.rules = simulator::parse_rules(rules);
    options.threads = static_cast<int>(threads);
    const auto module = simulator::load(std::string_view(ptx.data(), ptx.size()));
    return String(simulator::to_json(simulator::run(*module, launch, options)));
}

/// The 128 bytes of a tensor map; `strides_bytes` of dimensions 1 and up.
Bytes simulator_tensor_map(int64_t address, int64_t type, const Array<int64_t>& sizes,
                           const Array<int64_t>& strides_bytes, const Array<int64_t>& box, int64_t swizzle) {
    TensorMapSpec spec;
    spec.address = reinterpret_cast<void*>(address);
    spec.type = static_cast<TensorMapType>(type);
    spec.rank = static_cast<int>(sizes.size());
    spec.swizzle = static_cast<TensorMapSwizzle>(swizzle);
    require(box.size() == sizes.size() && (sizes.empty() || strides_bytes.size() + 1 == sizes.size()),
            "sizes, strides and box disagree on the rank");
    require(sizes.size() <= 5, "a tensor map has 1 to 5 dimensions, not ", sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
        spec.sizes[i] = static_cast<uint64_t>(sizes[i]);
        spec.box[i] = static_cast<uint32_t>(box[i]);
        if (i > 0) spec.strides_bytes[i - 1] = static_cast<uint64_t>(strides_bytes[i - 1]);
    }
    const EncodedTensorMap map = simulator::encode(spec);
    return Bytes(reinterpret_cast<const char*>(&map), sizeof(map));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(simulator_options, deep_gemm::simulator_options);
DEEP_GEMM_EXPORT(set_simulator_options, deep_gemm::set_simulator_options);
DEEP_GEMM_EXPORT(simulator_reports, deep_gemm::simulator_reports);
DEEP_GEMM_EXPORT(clear_simulator_reports, deep_gemm::clear_simulator_reports);
DEEP_GEMM_EXPORT(simulator_run, deep_gemm::simulator_run);
DEEP_GEMM_EXPORT(simulator_tensor_map, deep_gemm::simulator_tensor_map);
