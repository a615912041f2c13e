// tensormap.replace and tensormap.cp_fenceproxy, and what is known of maps that change.
#include "map_changes.hpp"

#include <cstring>

#include "../../../util/require.hpp"
#include "../../device.hpp"
#include "../core/execute.hpp"
#include "arena.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr const char* kKind = "tensor map fence";
constexpr uint64_t kMapAlignment = 64;

/// Whether a fence of this scope, by a lane of that warp, covers whoever made the last change.
bool covers(Scope scope, const Warp& warp, const ChangedMap& map) {
    if (scope == Scope::cta) return map.cluster == warp.cluster->index && map.block == warp.cta->rank;
    return scope != Scope::cluster || map.cluster == warp.cluster->index;
}

std::string last_change(const Cluster& cluster, const ChangedMap& map) {
    return concat("\n    earlier: change by ",
                  map.cluster == cluster.index ? describe_agent(cluster, map.lane)
                                               : concat("a thread of cluster ", map.cluster),
                  " at ", cluster.module->location(*map.instruction));
}

void check_stores_ended(Warp& warp, unsigned lane, uint64_t address) {
    Cluster& cluster = *warp.cluster;
    const auto found = cluster.known_maps->in_stores.find(address);
    if (found == cluster.known_maps->in_stores.end()) return;
    const View view = view_of(warp, lane);
    for (const auto& [agent, sequence] : found->second)
        if (sequence > view.of(agent))
            report(cluster, kKind,
                   concat("the tensor map at ", hex(address), " changes while a store may still read it: ",
                          describe_agent(cluster, agent), " is not known to be over (cp.async.bulk.wait_group)"),
                   &warp);
}

/// The rules that the host checks where it encodes one.
void check_rules(Warp& warp, uint64_t address, const StoredTensorMap& map) {
    TensorMapSpec spec;
    spec.address = reinterpret_cast<void*>(map.address);
    spec.type = TensorMapType(map.type);
    spec.rank = map.rank;
    for (int i = 0; i < map.rank; ++i) {
        spec.sizes[i] = map.sizes[i], spec.box[i] = map.box[i];
        if (i + 1 < map.rank) spec.strides_bytes[i] = map.strides[i];
    }
    spec.swizzle = TensorMapSwizzle(map.swizzle);
    try {
        check_tensor_map(spec);
    } catch (const Error& broken) {
        report(*warp.cluster, "tensor map",
               concat("the tensor map at ", hex(address), " has become none: ", broken.what()), &warp);
    }
}

}  // namespace

void map_changed(Warp& warp, unsigned lane, uint64_t address) {
    check_stores_ended(warp, lane, address);
    MapChanges& changes = *warp.cluster->launch->map_changes;
    const std::lock_guard lock(changes.mutex);
    ChangedMap& map = changes.maps[address];
    ++map.changes;
    map.cluster = warp.cluster->index, map.block = warp.cta->rank;
    map.lane = Agent(warp.agent + lane), map.tick = warp.tick, map.instruction = &warp.instruction();
    changes.any = true;
}

void note_stored_map(Warp& warp, unsigned lane, uint64_t address, const char* data, uint32_t bytes) {
    if (address % kMapAlignment == 0 && bytes >= sizeof(kTensorMapMagic) &&
        std::memcmp(data, &kTensorMapMagic, sizeof(kTensorMapMagic)) == 0)
        return map_changed(warp, lane, address);
    MapChanges& changes = *warp.cluster->launch->map_changes;
    if (!changes.any) return;
    for (const uint64_t start : {address & ~(kMapAlignment - 1), (address & ~(kMapAlignment - 1)) - kMapAlignment}) {
        std::unique_lock lock(changes.mutex);
        if (!changes.maps.contains(start)) continue;
        lock.unlock();
        return map_changed(warp, lane, start);
    }
}

void publish_maps(Warp& warp, uint32_t lanes, Scope scope) {
    MapChanges& changes = *warp.cluster->launch->map_changes;
    if (!changes.any) return;
    const std::lock_guard lock(changes.mutex);
    for (auto& [address, map] : changes.maps) {
        if (map.published == map.changes || map.cluster != warp.cluster->index) continue;
        for (uint32_t left = lanes; left; left &= left - 1)
            if (view_of(warp, unsigned(std::countr_zero(left))).of(map.lane) >= map.tick)
                map.published = map.changes, map.scope = scope;
    }
    tick(warp);
}

void acquire_map(Warp& warp, uint32_t lanes, uint64_t address, Scope scope) {
    MapChanges& changes = *warp.cluster->launch->map_changes;
    if (!changes.any) return;
    uint32_t seen = 0;
    {
        const std::lock_guard lock(changes.mutex);
        const auto found = changes.maps.find(address);
        if (found == changes.maps.end() || !covers(scope, warp, found->second)) return;
        seen = found->second.published;
    }
    auto& acquired = warp.cluster->known_maps->acquired;
    if (!acquired.contains(address))
        acquired[address] = warp.cluster->new_agent(concat("changes of the tensor map at ", hex(address)));
    learn(warp, lanes, acquired[address], seen);
}

void check_map_use(Warp& warp, unsigned lane, uint64_t address, const StoredTensorMap& stored) {
    Cluster& cluster = *warp.cluster;
    MapChanges& changes = *cluster.launch->map_changes;
    if (!changes.any) return;
    ChangedMap map;
    {
        const std::lock_guard lock(changes.mutex);
        const auto found = changes.maps.find(address);
        if (found == changes.maps.end()) return;
        map = found->second;
        found->second.checked = map.changes;
    }
    if (map.checked != map.changes) check_rules(warp, address, stored);
    const auto acquired = cluster.known_maps->acquired.find(address);
    const uint32_t seen = acquired == cluster.known_maps->acquired.end() ? 0 : view_of(warp, lane).of(acquired->second);
    const char* missing = nullptr;
    if (map.published < map.changes)
        missing = "no fence.proxy.tensormap::generic.release stands behind its last change";
    else if (!covers(map.scope, warp, map))
        missing = "the release fence behind its last change is of a scope that this block is not in";
    else if (seen < map.changes)
        missing = "no fence.proxy.tensormap::generic.acquire of it stands before the use";
    if (missing)
        report(cluster, kKind,
               concat("the tensor map at ", hex(address), " is used, but ", missing, last_change(cluster, map)), &warp);
}

void map_read_by_store(Warp& warp, uint64_t address, uint32_t sequence) {
    if (is_writable(*warp.cluster->launch, address))
        warp.cluster->known_maps->in_stores[address][warp.bulk_agent] = sequence;
}

namespace {

enum class Field : uint32_t { address, rank, box, size, stride, step, type, swizzle };
constexpr unsigned kFieldBits = 4, kOrdinalBits = 4;

/// A map that an instruction writes to, in shared or global memory.
Place map_place(Warp& w, Space space, uint64_t address) {
    if (address % kMapAlignment)
        report(*w.cluster, "misaligned", concat("tensor map at ", hex(address), " is not aligned to 64 bytes"), &w);
    if (space == Space::generic && (address & kWindowMask) == kSharedWindow) space = Space::shared_cta;
    if (space == Space::shared_cta)
        return shared_place(w, uint32_t(address), sizeof(EncodedTensorMap), true, "tensor map");
    return {global_range(*w.cluster, address, sizeof(EncodedTensorMap), true, &w, nullptr)};
}

bool is_map(Warp& w, const Place& place, uint64_t address) {
    if (!place.data) return false;
    const bool found = std::memcmp(place.data, &kTensorMapMagic, sizeof(kTensorMapMagic)) == 0;
    if (!found) report(*w.cluster, "tensor map", concat("there is no tensor map at ", hex(address)), &w);
    return found;
}

void replace(StoredTensorMap& map, Field field, uint32_t ordinal, uint64_t value, const Warp& w) {
    switch (field) {
        case Field::address:
            map.address = value;
            break;
        case Field::rank:
            map.rank = uint8_t(value + 1);
            break;
        case Field::box:
            map.box[ordinal] = uint16_t(std::min<uint64_t>(value, UINT16_MAX));
            break;
        case Field::size:
            map.sizes[ordinal] = value;
            break;
        case Field::stride:
            map.strides[ordinal] = value;
            break;
        case Field::step:
            if (value != 1)
                fail(ErrorKind::runtime, "simulator: tensor maps that leave elements out are not modelled, at ",
                     w.cluster->module->location(w.instruction()));
            break;
        case Field::type:
            map.type = uint8_t(value);
            break;
        case Field::swizzle:
            map.swizzle = uint8_t(value);
            break;
    }
}

Step replace_field(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto field = Field(in.flags & ((1u << kFieldBits) - 1));
    const uint32_t ordinal = in.flags >> kFieldBits & ((1u << kOrdinalBits) - 1);
    const auto space = Space(in.flags >> (kFieldBits + kOrdinalBits));
    for (uint32_t left = lanes; left; left &= left - 1) {
        const auto lane = unsigned(std::countr_zero(left));
        const uint64_t address = read_any(w, in.a, lane) + uint64_t(in.displacement);
        const Place place = map_place(w, space, address);
        if (place.cta) shared_read(w, lane, *place.cta, place.offset, sizeof(EncodedTensorMap));
        if (!is_map(w, place, address)) continue;
        const uint64_t value = in.b.present ? read_any(w, in.b, lane) : uint64_t(in.displacement2);
        replace(*reinterpret_cast<StoredTensorMap*>(place.data), field, ordinal, value, w);
        if (place.cta) {
            shared_write(w, lane, *place.cta, place.offset, sizeof(EncodedTensorMap), true);
        } else {
            touch_global(w, lane, address, sizeof(EncodedTensorMap), true);
            map_changed(w, lane, address);
        }
    }
    ++w.cluster->progress;
    return Step::next;
}

Step copy_and_publish(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto first = unsigned(std::countr_zero(lanes));
    const uint64_t to = read_any(w, in.a, first) + uint64_t(in.displacement),
                   from = read_any(w, in.b, first) + uint64_t(in.displacement2);
    const Place source = map_place(w, Space::shared_cta, from), target = map_place(w, Space::global, to);
    if (!is_map(w, source, from) || !target.data) return Step::next;
    for (uint32_t left = lanes; left; left &= left - 1)
        shared_read(w, unsigned(std::countr_zero(left)), *source.cta, source.offset, sizeof(EncodedTensorMap));
    std::memcpy(target.data, source.data, sizeof(EncodedTensorMap));
    map_changed(w, first, to);
    publish_maps(w, lanes, Scope(in.flags));
    ++w.cluster->progress;
    return Step::next;
}

TensorMapType type_of(Decoder& decoder, int64_t number) {
    constexpr int kTypes = 16, kNone = -1;
    // u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16, tf32, tf32.ftz, b4x16, b4x16_p64, b6x16_p32
    constexpr TensorMapType kBits16 = TensorMapType::bf16, kBits32 = TensorMapType::i32, kFp32 = TensorMapType::f32;
    constexpr int kKnown[kTypes] = {int(TensorMapType::u8),
                                    int(kBits16),
                                    int(kBits32),
                                    int(kBits32),
                                    kNone,
                                    kNone,
                                    int(TensorMapType::f16),
                                    int(kFp32),
                                    kNone,
                                    kNone,
                                    int(TensorMapType::bf16),
                                    int(kFp32),
                                    kNone,
                                    int(TensorMapType::u4),
                                    int(TensorMapType::u4_spread),
                                    int(TensorMapType::u6_spread)};
    if (number < 0 || number >= kTypes || kKnown[number] == kNone)
        decoder.error(concat("element type ", number, " of tensor maps is not modelled"));
    return TensorMapType(kKnown[number]);
}

/// Of a field whose value stands in the text; those that only have one modelled value need no handler.
void decode_constant_field(Decoder& decoder, std::string_view name) {
    const int64_t value = decoder.constant(1);
    if (name == "elemtype") {
        decoder.out.flags |= uint32_t(Field::type);
        decoder.out.displacement2 = int64_t(type_of(decoder, value));
    } else if (name == "swizzle_mode") {
        if (value < 0 || value > int64_t(TensorMapSwizzle::bytes_128))
            decoder.error(concat("swizzle mode ", value, " of tensor maps is not modelled"));
        decoder.out.flags |= uint32_t(Field::swizzle);
        decoder.out.displacement2 = value;
    } else {
        if (value) decoder.error(concat(name, " of tensor maps is modelled as 0, got ", value));
        decoder.out.flags |= uint32_t(Field::step);
        decoder.out.displacement2 = 1;
    }
}

void decode_replace(Decoder& decoder) {
    if (!decoder.mod("tile")) decoder.error("tensormap.replace of tiled maps is modelled only");
    const auto name =
        decoder.one_of({"global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
                        "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode"});
    const auto space = decoder.one_of({"global", "shared::cta"});
    if (!decoder.mod("b1024")) decoder.error(".b1024 expected");
    const bool wide = name == "global_address" || name == "global_stride";
    const Type type = decoder.need_type();
    if (type != (wide ? Type::b64 : Type::b32)) decoder.error(concat(name, " is of ", wide ? "b64" : "b32"));
    const Space where = space == "global" ? Space::global : space.empty() ? Space::generic : Space::shared_cta;
    decoder.out.flags = uint32_t(where) << (kFieldBits + kOrdinalBits);
    decoder.out.a = decoder.address(decoder.node(0), decoder.out.displacement);
    decoder.set(replace_field);
    if (name == "global_address" || name == "rank") {
        decoder.out.flags |= uint32_t(name == "rank" ? Field::rank : Field::address);
        decoder.out.b = decoder.source(1, type);
        return;
    }
    constexpr std::string_view kOfDimensions[] = {"box_dim", "global_dim", "global_stride", "element_stride"};
    constexpr Field kFields[] = {Field::box, Field::size, Field::stride, Field::step};
    for (size_t i = 0; i < std::size(kFields); ++i) {
        if (name != kOfDimensions[i]) continue;
        const int64_t ordinal = decoder.constant(1), most = wide ? 3 : 4;
        if (ordinal < 0 || ordinal > most) decoder.error(concat("dimension 0 to ", most, " expected, got ", ordinal));
        decoder.out.flags |= uint32_t(kFields[i]) | uint32_t(ordinal) << kFieldBits;
        decoder.out.b = decoder.source(2, type);
        return;
    }
    if (name.empty()) decoder.error("tensormap.replace needs the field that it replaces");
    decode_constant_field(decoder, name);
}

void decode_copy(Decoder& decoder) {
    if (!decoder.mod("global") || !decoder.mod("shared::cta") || !decoder.mod("tensormap::generic") ||
        !decoder.mod("release") || !decoder.mod("sync") || !decoder.mod("aligned"))
        decoder.error("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release expected");
    decoder.out.flags = uint32_t(take_scope(decoder, Scope::sys));
    decoder.out.a = decoder.address(decoder.node(0), decoder.out.displacement);
    decoder.out.b = decoder.address(decoder.node(1), decoder.out.displacement2);
    if (decoder.constant(2) != sizeof(EncodedTensorMap)) decoder.error("a tensor map has 128 bytes");
    decoder.out.gather = Gather::warp;
    decoder.set(copy_and_publish);
}

void decode_tensormap(Decoder& decoder) {
    if (decoder.mod("replace")) return decode_replace(decoder);
    if (decoder.mod("cp_fenceproxy")) return decode_copy(decoder);
    decoder.error("tensormap has replace and cp_fenceproxy");
}

}  // namespace

void add_tensor_maps(DecodeTable& table) { table["tensormap"] = decode_tensormap; }

}  // namespace deep_gemm::simulator
