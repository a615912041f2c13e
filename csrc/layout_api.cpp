// What Python's deep_gemm/layout.py and deep_gemm/weights call. Results are allocated there; here they are checked and
// filled. And the kernels that pack exponents and transpose operands by themselves, for tests and benchmarks.
#include "api/call/dtypes.hpp"
#include "api/call/lender.hpp"
#include "api/call/tensors.hpp"
#include "api/prepare/pack_weights.hpp"
#include "api/prepare/scale_layout.hpp"
#include "api/prepare/transpose.hpp"
#include "config/archs.hpp"
#include "config/fields.hpp"
#include "config/host_facts.hpp"
#include "util/ffi.hpp"

namespace deep_gemm {
namespace {

Device& device_of(const TensorView& sf) { return Device::get(device_id_of(sf, "sf")); }

bool is_word(const TensorView& tensor) {
    const DLDataType type = tensor.dtype();
    return (type.code == kDLFloat || type.code == kDLInt) && type.bits == 32 && type.lanes == 1;
}

template <typename Word>
Word* words_of(const TensorView& tensor) {
    return reinterpret_cast<Word*>(tensor.data());
}

/// sf [groups, source rows, k] in any strides -> out [groups, rows, words], MN-major with rows padded to `padded_rows`.
void transform(const TensorView& sf, const TensorView& out, int64_t padded_rows, int64_t row_granularity,
               int64_t encoding) {
    require(encoding >= 0 && encoding <= 1, "unknown scale encoding ", encoding);
    require(row_granularity >= 1, "row granularity must be at least 1, got ", row_granularity);
    require_type(is_word(sf) && is_word(out), "scales must be FP32, or int32 that packs exponents");
    require(sf.ndim() == 3 && out.ndim() == 3, "scales must have three dimensions here");
    const auto kind = static_cast<ScaleEncoding>(encoding);
    const int64_t words =
        kind == ScaleEncoding::words ? sf.size(2) : (sf.size(2) + kScalesPerWord - 1) / kScalesPerWord;
    require(out.size(0) == sf.size(0) && out.size(2) == words &&
                (out.size(1) + row_granularity - 1) / row_granularity == sf.size(1) && padded_rows >= out.size(1),
            "transformed scales have the wrong shape");
    const ScaleLayoutParams params{.source = words_of<const uint32_t>(sf),
                                   .target = words_of<uint32_t>(out),
                                   .group_stride = sf.stride(0),
                                   .row_stride = sf.stride(1),
                                   .k_stride = sf.stride(2),
                                   .rows = to_int32(out.size(1), "the number of rows"),
                                   .padded_rows = to_int32(padded_rows, "the number of rows"),
                                   .k_scales = to_int32(sf.size(2), "the number of scales along K"),
                                   .k_words = to_int32(words, "the number of words along K"),
                                   .num_groups = to_int32(sf.size(0), "the number of groups"),
                                   .row_granularity = to_int32(row_granularity, "the row granularity")};
    launch_scale_layout(device_of(sf), params, kind, /*in_blocks=*/false, current_stream(device_of(sf).id()));
}

/// sf [scales, rows] -> out [words, rows], rows padded to `padded_rows`. `layout` is int32 on the same device: each
/// group's K, or with `psum_alignment` > 0 where it ends.
void transform_k_grouped(const TensorView& sf, const TensorView& layout, const TensorView& out, int64_t padded_rows,
                         int64_t gran_k, int64_t psum_alignment) {
    require_type(is_word(sf) && is_word(out) && is_word(layout), "scales must be FP32 and the layout int32");
    require(sf.ndim() == 2 && out.ndim() == 2 && layout.ndim() == 1 && (layout.size(0) <= 1 || layout.stride(0) == 1) &&
                out.size(1) == sf.size(1) && padded_rows >= out.size(1),
            "packed K-grouped scales have the wrong shape");
    const KGroupedScaleLayoutParams params{
        .source = words_of<const uint32_t>(sf),
        .target = words_of<uint32_t>(out),
        .row_stride = sf.stride(1),
        .k_stride = sf.stride(0),
        .grouped_layout = words_of<const int32_t>(layout),
        .psum_alignment = to_int32(psum_alignment, "the alignment of the psum layout"),
        .rows = to_int32(sf.size(1), "the number of rows"),
        .padded_rows = to_int32(padded_rows, "the number of rows"),
        .num_groups = to_int32(layout.size(0), "the number of groups"),
        .k_scales = to_int32(sf.size(0), "the number of scales along K"),
        .k_words = to_int32(out.size(0), "the number of words along K")};
    launch_k_grouped_scale_layout(device_of(sf), params, to_int32(gran_k, "gran_k"), ScaleEncoding::exponents_exact,
                                  current_stream(device_of(sf).id()));
}

/// sf [groups, source rows, k], FP32, E8M0 or packed words -> `out`, words of `rows` rows as kernels of SM100 read
/// them: [groups, words, rows and padding], or in blocks of rows [groups, blocks, words, 128]. For tests and
/// benchmarks.
void pack(const TensorView& sf, const TensorView& out, int64_t rows, int64_t row_granularity) {
    const Element element = element_of(sf.dtype());
    const bool in_blocks = out.ndim() == 4, words = element == Element::s32;
    require_type((element == Element::fp32 || element == Element::ue8m0 || words) && is_int32(out.dtype()),
                 "sf must be float32, float8_e8m0fnu or int32, and out int32");
    require(sf.ndim() == 3 && (in_blocks || out.ndim() == 3), "sf and out have the wrong number of dimensions");
    const int64_t k_words = words ? sf.size(2) : (sf.size(2) + kScalesPerWord - 1) / kScalesPerWord;
    const int64_t padded_rows = in_blocks ? out.size(1) * kWordBlockRows : out.size(2);
    require(out.size(0) == sf.size(0) && out.size(in_blocks ? 2 : 1) == k_words && padded_rows >= rows &&
                (!in_blocks || out.size(3) == kWordBlockRows) && row_granularity >= 1 &&
                (rows + row_granularity - 1) / row_granularity == sf.size(1),
            "packed scales have the wrong shape");
    const ScaleLayoutParams params{.source = words_of<const uint32_t>(sf),
                                   .target = words_of<uint32_t>(out),
                                   .group_stride = sf.stride(0),
                                   .row_stride = sf.stride(1),
                                   .k_stride = sf.stride(2),
                                   .rows = to_int32(rows, "the number of rows"),
                                   .padded_rows = to_int32(padded_rows, "the number of rows"),
                                   .k_scales = to_int32(sf.size(2), "the number of scales along K"),
                                   .k_words = to_int32(k_words, "the number of words along K"),
                                   .num_groups = to_int32(sf.size(0), "the number of groups"),
                                   .row_granularity = to_int32(row_granularity, "the row granularity")};
    const ScaleEncoding encoding = words                       ? ScaleEncoding::words
                                   : element == Element::ue8m0 ? ScaleEncoding::packed_bytes
                                                               : ScaleEncoding::exponents_exact;
    launch_scale_layout(device_of(sf), params, encoding, in_blocks, current_stream(device_of(sf).id()));
}

/// Of which kernels run on this tensor's device: "sm90".
std::string scale_layout_arch(const TensorView& tensor) {
    return std::string(name(arch_of(device_of(tensor).facts())));
}

/// What layouts of scales and weights depend on, by architecture and fact, as "sm100 multiplies_rows", one a line.
std::string layout_facts() {
    std::string text;
    for (int32_t i = 0; i < kArchCount; ++i) {
        const auto arch = static_cast<Arch>(i);
        const HostFacts& facts = host_facts(arch);
        const std::pair<bool, const char*> named[] = {{facts.multiplies_exponents, "multiplies_exponents"},
                                                      {facts.fp32_scales_of_32, "fp32_scales_of_32"},
                                                      {facts.multiplies_rows, "multiplies_rows"}};
        for (const auto& [is_so, fact] : named)
            if (is_so) text += concat(name(arch), " ", fact, "\n");
    }
    return text;
}

void transpose(const TensorView& source, const TensorView& target, const OptionalTensor& ks, int64_t psum_alignment) {
    require_type(source.dtype().bits == 8 && target.dtype().bits == 8, "source and target must have one-byte elements");
    const DeviceId id = device_id_of(source, "source");
    require_device(target, "target", id, "source");
    const Matrix from = matrix_of(source, "source", true, "[G, K, MN]", true),
                 to = matrix_of(target, "target", true, "[G, MN, K]");
    require(from.row_stride == 1 || from.rows == 1, "source must have MN contiguous, got strides ",
            describe_strides(source));
    require(to.groups == from.groups && to.rows == from.rows, "target must be [G, MN, at least K] for source ",
            describe_shape(source), ", got shape ", describe_shape(target));
    require(to.col_stride == 1 && to.row_stride % 16 == 0 && (to.groups == 1 || to.group_stride % 16 == 0) &&
                reinterpret_cast<uintptr_t>(to.data) % 16 == 0,
            "target's rows must start at multiples of 16 bytes, got strides ", describe_strides(target));
    if (from.rows == 0 || from.cols == 0 || from.groups == 0) return;
    KGroupLayout groups{};
    int64_t k_tiles = (from.cols + kTransposeTile - 1) / kTransposeTile;
    if (ks) {
        const TensorView& layout = *ks;
        require_type(is_int32(layout.dtype()), "ks must be int32, got ", describe(layout.dtype()));
        require(layout.ndim() == 1, "ks must be [groups], got shape ", describe_shape(layout));
        require_device(layout, "ks", id, "source");
        require(from.groups == 1 && to.cols % kTransposeTile == 0,
                "K groups want one matrix, and a target whose K is a multiple of 128");
        groups = {.values = reinterpret_cast<const int32_t*>(layout.data()),
                  .num_groups = to_int32(layout.size(0), "the number of groups"),
                  .psum_alignment = to_int32(psum_alignment, "the alignment"),
                  .k_end = to_int32(from.cols, "K"),
                  .block_end = to_int32(to.cols / kTransposeTile, "the number of blocks")};
        k_tiles = to.cols / kTransposeTile;
    } else {
        require(to.cols >= (from.cols + 15) / 16 * 16, "target's rows must have room for K=", from.cols,
                " rounded up to 16, got ", to.cols);
    }
    launch_transpose(Device::get(id), from, to, k_tiles, ks ? &groups : nullptr, current_stream(id));
}

/// values [G, N, K], bytes of codes from `smallest` on or of E4M3, or [G, N, K / 2] of pairs -> codes [G, row blocks,
/// K blocks, bytes], as weights of `element` lie, beside activations of 16 bits if `wide`.
void pack_codes(const TensorView& values, const TensorView& codes, const TensorView& found, int64_t element, bool wide,
                int64_t smallest, bool offset, bool pairs) {
    const DeviceId id = device_id_of(values, "values");
    require_device(codes, "codes", id, "values"), require_device(found, "found", id, "values");
    require_type(values.dtype().bits == 8 && codes.dtype().bits == 8 && is_int32(found.dtype()),
                 "values and codes must have one-byte elements, and found must be int32");
    require(element >= 0 && element < kElementCount &&
                (smallest == 0 || smallest == -unsigned_offset(static_cast<Element>(element))) &&
                !(pairs && bits(static_cast<Element>(element)) != 4),
            "unknown kind of weights");
    const Matrix from = matrix_of(values, "values", true, pairs ? "[G, N, K / 2]" : "[G, N, K]");
    require(from.col_stride == 1 && from.rows > 0 && from.cols > 0, "values must have K contiguous and not be empty");
    const int64_t k_blocks = round_up(from.cols * (pairs ? 2 : 1), kPackedK) / kPackedK;
    const int64_t row_blocks = packed_blocks(to_int32(from.rows, "N")),
                  block_bytes = packed_block_bytes(static_cast<Element>(element));
    require(codes.ndim() == 4 && codes.size(0) == from.groups && codes.size(1) == row_blocks &&
                codes.size(2) == k_blocks && codes.size(3) == block_bytes &&
                extent_bytes(codes) == static_cast<size_t>(from.groups * row_blocks * k_blocks * block_bytes) &&
                reinterpret_cast<uintptr_t>(codes.data()) % 16 == 0 && found.ndim() == 1 && found.size(0) == 1,
            "codes must be contiguous [", from.groups, ", ", row_blocks, ", ", k_blocks, ", ", block_bytes,
            "], and found [1], got shape ", describe_shape(codes), " and ", describe_shape(found));
    launch_pack_codes(Device::get(id), from, codes.data(), {.found = words_of<int32_t>(found)},
                      {.element = static_cast<Element>(element),
                       .wide = wide,
                       .is_signed = smallest < 0,
                       .offset = offset,
                       .pairs = pairs},
                      current_stream(id));
}

/// scales [G, N, groups of K], FP32, E8M0 or words of four exponents -> out [G, groups of `kept_k`, padded N], times
/// `factor`, a power of two. `row_granularity`, `given_k`: rows, and K, that share one of the given scales.
void pack_scales(const TensorView& scales, const TensorView& out, int64_t rows, int64_t row_granularity,
                 int64_t given_k, int64_t kept_k, int64_t factor) {
    const DeviceId id = device_id_of(scales, "scales");
    require_device(out, "out", id, "scales");
    const Element element = element_of(scales.dtype());
    require_type(element == Element::fp32 || element == Element::ue8m0 || element == Element::s32,
                 "scales must be float32, float8_e8m0fnu or int32 (packed UE8M0 exponents), got ",
                 describe(scales.dtype()));
    require_type(element_of(out.dtype()) == Element::fp32, "out must be float32");
    require(kept_k > 0 && given_k % kept_k == 0, "groups must be multiples of those that are kept");
    require(row_granularity > 0, "at least one row must share a scale, but ", row_granularity, " do");
    const Matrix from = matrix_of(scales, "scales", true, "[G, N, groups of K]");
    require(out.ndim() == 3 && out.size(0) == from.groups &&
                from.rows == (rows + row_granularity - 1) / row_granularity &&
                out.size(2) == round_up(rows, kPackedRowsPadded) &&
                extent_bytes(out) == static_cast<size_t>(out.size(0) * out.size(1) * out.size(2)) * 4,
            "out must be contiguous [G, groups of K, N up to a multiple of ", kPackedRowsPadded, "], got shape ",
            describe_shape(out));
    const int64_t per_entry = element == Element::s32 ? kScalesPerWord : 1;
    launch_pack_scales(Device::get(id),
                       {.source = scales.data(),
                        .target = words_of<float>(out),
                        .group_stride = scales.stride(0),
                        .row_stride = scales.stride(1),
                        .k_stride = scales.stride(2),
                        .rows = to_int32(rows, "N"),
                        .padded_rows = to_int32(out.size(2), "N"),
                        .k_scales = to_int32(from.cols * per_entry, "the number of scales along K"),
                        .k_groups = to_int32(out.size(1), "the number of groups along K"),
                        .repeat = to_int32(given_k / kept_k, "the number of groups that share a scale"),
                        .row_repeat = to_int32(row_granularity, "the number of rows that share a scale"),
                        .factor = static_cast<float>(factor)},
                       element, from.groups, extent_bytes(scales), current_stream(id));
}

}  // namespace
}  // namespace deep_gemm

DEEP_GEMM_EXPORT(pack_codes, deep_gemm::pack_codes);
DEEP_GEMM_EXPORT(pack_scales, deep_gemm::pack_scales);
DEEP_GEMM_EXPORT(scale_layout_transform, deep_gemm::transform);
DEEP_GEMM_EXPORT(scale_layout_transform_k_grouped, deep_gemm::transform_k_grouped);
DEEP_GEMM_EXPORT(scale_layout_pack, deep_gemm::pack);
DEEP_GEMM_EXPORT(layout_facts, deep_gemm::layout_facts);
DEEP_GEMM_EXPORT(scale_layout_arch, deep_gemm::scale_layout_arch);
DEEP_GEMM_EXPORT(transpose, deep_gemm::transpose);
