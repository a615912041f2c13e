#include "arena.hpp"

#include <algorithm>
#include <bit>

#include "../../../util/require.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr size_t kWritesKept = 16;
constexpr uint32_t kLateReads = 4;  // of one lane in the lazy schedule, before it sees the latest write
constexpr uint32_t kNobody = ~0u;

bool knows(const Warp& warp, unsigned lane, uint32_t other, uint32_t tick) {
    return other == kNobody || other == warp.far_agent + lane || warp.known_by[lane]->clock.far_of(other) >= tick;
}

constexpr uint8_t kWholeWord = 0xf;

/// Which bytes of the word at `word` an access has.
uint8_t bytes_of_word(uint64_t word, uint64_t address, unsigned bytes) {
    const uint64_t first = std::max(word, address) - word, end = std::min(word + 4, address + bytes) - word;
    return static_cast<uint8_t>((1u << end) - (1u << first));
}

const char* name(Scope scope) {
    constexpr const char* kNames[] = {".cta", ".cluster", ".gpu", ".sys"};
    return kNames[static_cast<int>(scope)];
}

/// What a lane knows and did, of all devices.
Clock known(const Warp& warp, unsigned lane) {
    Clock clock = warp.known_by[lane]->clock.far_part();
    clock.set_far(warp.far_agent + lane, warp.tick);
    return clock;
}

}  // namespace

Scope take_scope(Decoder& decoder, Scope otherwise) {
    const auto scope = decoder.one_of({"cta", "cluster", "gpu", "gl", "sys"});
    if (scope.empty()) return otherwise;
    return scope == "cta" ? Scope::cta : scope == "cluster" ? Scope::cluster : scope == "sys" ? Scope::sys : Scope::gpu;
}

void release_near(Warp& warp, uint32_t lanes) {
    release(warp, lanes, warp.cluster->sync_clock);
    warp.cluster->sync_clock.drop_far();
}

void release_far(Warp& warp, uint32_t lanes) { warp.cluster->far_clock.join(released(warp, lanes).far_part()); }

bool Arena::holds(uint64_t address) const {
    return std::any_of(shared_.begin(), shared_.end(), [&](const Extent& extent) {
        return address - reinterpret_cast<uint64_t>(extent.data) < extent.bytes;
    });
}

Arena::Word& Arena::word_at(uint64_t address) {
    Word& word = words_[address / 4];
    if (word.writes.empty()) {
        uint32_t value;
        __builtin_memcpy(&value, reinterpret_cast<const char*>(address / 4 * 4), 4);
        word.writes.push_back({value, 0, kNobody, 0, 0, true, Scope::sys, kWholeWord, nullptr, {}});
    }
    return word;
}

Arena::LaneOrder& Arena::order_of(uint32_t lane) { return orders_[lane]; }

size_t Arena::first_visible(const Warp& warp, unsigned lane, uint64_t address, const Word& word) const {
    const uint32_t floor = warp.known_by[lane]->clock.floor_of(address / 4);
    for (size_t i = word.writes.size(); i-- > 1;) {
        const Write& write = word.writes[i];
        if (write.sequence <= floor || knows(warp, lane, write.lane, write.tick)) return i;
    }
    return 0;
}

size_t Arena::choose(Word& word, uint32_t lane, size_t first) {
    const size_t last = word.writes.size() - 1;
    if (first == last) {
        word.late.erase(lane);
        return last;
    }
    if (devices_.schedule == Schedule::lazy && ++word.late[lane] <= kLateReads) return first;
    if (devices_.schedule == Schedule::random && devices_.dice.next() % 2)
        return first + devices_.dice.next() % (last - first + 1);
    return last;
}

void Arena::check(Warp& warp, unsigned lane, uint64_t address, const Word& word, bool write, uint8_t bytes,
                  const Order& order) {
    const uint32_t me = lane_of(warp, lane);
    const auto conflict = [&](uint32_t other, uint32_t tick, bool strong, Scope scope, const Instruction* instruction,
                              bool other_writes) {
        if (knows(warp, lane, other, tick)) return false;
        const Scope needed = devices_.between(me, other);
        if (strong && order.strong && needed <= std::min(scope, order.scope)) return false;
        const bool scopes = strong && order.strong;
        const std::string reason = scopes
                                       ? concat("both are strong, but their scopes (", name(order.scope), ", ",
                                                name(scope), ") do not include each other, which takes ", name(needed))
                                       : std::string("nothing orders the two");
        report(*warp.cluster, scopes ? "scope" : "race",
               concat("shared memory of several devices at ", hex(address), " is ", write ? "written" : "read", " by ",
                      devices_.describe(me), "; ", reason, "\n    earlier: ", other_writes ? "write" : "read", " by ",
                      devices_.describe(other), " at ", warp.cluster->module->location(*instruction)),
               &warp);
        return true;
    };
    for (size_t i = word.writes.size(); i-- > 0;) {
        const Write& each = word.writes[i];
        if (each.instruction && each.bytes & bytes &&
            conflict(each.lane, each.tick, each.strong, each.scope, each.instruction, true))
            return;
    }
    if (!write) return;
    for (const Reader& each : word.readers)
        if (each.bytes & bytes && conflict(each.lane, each.tick, each.strong, each.scope, each.instruction, false))
            return;
}

void Arena::take_over(Warp& warp, unsigned lane, uint64_t address, const Write& write, const Order& order) {
    if (!order.strong || write.lane == kNobody) return;
    if (warp.known_by[lane]->clock.floor_of(address / 4) < write.sequence) {
        Clock floor;
        floor.set_floor(address / 4, write.sequence);
        learn(warp, 1u << lane, floor);
    }
    const uint32_t me = lane_of(warp, lane);
    const auto apart = static_cast<size_t>(devices_.between(me, write.lane));
    if (!write.strong || apart > static_cast<size_t>(std::min(order.scope, write.scope))) return;
    const auto& handed_on = write.handed_on[apart];
    if (!handed_on) return;
    if (order.acquire)
        learn(warp, 1u << lane, *handed_on);
    else
        order_of(me).seen[apart].join(*handed_on);
}

void Arena::note_reader(const Warp& warp, unsigned lane, Word& word, uint8_t bytes, const Order& order) {
    const uint32_t me = lane_of(warp, lane);
    const Reader reader{me, warp.tick, order.strong, order.scope, bytes, &warp.instruction()};
    for (Reader& each : word.readers)
        if (each.lane == me && each.strong == reader.strong && (each.bytes & ~bytes) == 0) {
            each = reader;
            return;
        }
    word.readers.push_back(reader);
}

void Arena::load(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, unsigned element_bytes,
                 const Order& order, char* data) {
    uint64_t operation = 0;
    for (uint64_t at = address / 4 * 4; at < address + bytes; at += 4) {
        Word& word = word_at(at);
        check(warp, lane, at, word, false, bytes_of_word(at, address, bytes), order);
        const size_t first = first_visible(warp, lane, at, word);
        size_t chosen = choose(word, lane_of(warp, lane), first);
        // What one write has written of an element comes together.
        if (element_bytes > 4 && (at - address) % element_bytes != 0)
            for (size_t i = first; i < word.writes.size(); ++i)
                if (word.writes[i].operation == operation) chosen = i;
        const Write write = word.writes[chosen];
        operation = write.operation;
        take_over(warp, lane, at, write, order);
        note_reader(warp, lane, word, bytes_of_word(at, address, bytes), order);
        for (uint64_t byte = std::max(at, address); byte < std::min(at + 4, address + bytes); ++byte)
            data[byte - address] = reinterpret_cast<const char*>(&write.value)[byte - at];
    }
}

void Arena::fence_for_copies(Warp& warp, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        order_of(lane_of(warp, lane)).for_copies = known(warp, lane);
    }
}

void Arena::read_for_copy(Warp& warp, unsigned lane, uint64_t address, unsigned bytes) {
    const uint32_t me = lane_of(warp, lane);
    const Order weak;
    for (uint64_t at = address / 4 * 4; at < address + bytes; at += 4) {
        const auto found = words_.find(at / 4);
        if (found == words_.end()) continue;  // nobody has written it
        Word& word = found->second;
        const uint8_t read = bytes_of_word(at, address, bytes);
        check(warp, lane, at, word, false, read, weak);
        note_reader(warp, lane, word, read, weak);
        const Clock& fenced = order_of(me).for_copies;
        const auto late = std::ranges::find_if(word.writes, [&](const Write& write) {
            return write.instruction && write.bytes & read && knows(warp, lane, write.lane, write.tick) &&
                   fenced.far_of(write.lane) < write.tick;
        });
        if (late == word.writes.end()) continue;
        report(*warp.cluster, "proxy fence",
               concat("a copy reads memory at ", hex(at), " that ", devices_.describe(late->lane), " wrote at ",
                      warp.cluster->module->location(*late->instruction), ": ", devices_.describe(me),
                      " knows of it, but no fence.proxy.async stands between"),
               &warp);
        return;
    }
}

void Arena::append(Warp& warp, unsigned lane, uint64_t address, uint8_t bytes, const Order& order, bool atomic,
                   uint64_t operation) {
    Word& word = word_at(address);
    const uint32_t me = lane_of(warp, lane);
    uint32_t value;
    __builtin_memcpy(&value, reinterpret_cast<const char*>(address), 4);
    Write write{value,        ++word.sequence, me,    warp.tick,           operation,
                order.strong, order.scope,     bytes, &warp.instruction(), {}};
    if (order.strong) {
        std::shared_ptr<const Clock> now = order.release ? std::make_shared<const Clock>(known(warp, lane)) : nullptr;
        // A write hands on what an earlier one of its lane did, an atomic update also what that did which it met.
        const Write* before = nullptr;
        for (size_t i = word.writes.size(); i-- > 0 && !before;)
            if (word.writes[i].lane == me) before = &word.writes[i];
        const Write* met = atomic ? &word.writes.back() : nullptr;
        for (size_t scope = 0; scope < kScopes; ++scope) {
            Clock all;
            bool any = false;
            const auto add = [&](const std::shared_ptr<const Clock>& clock) {
                if (clock) all.join(*clock), any = true;
            };
            if (scope <= static_cast<size_t>(order.scope)) add(now), add(order_of(me).released[scope]);
            for (const Write* earlier : {before, met})
                if (earlier && earlier->strong) add(earlier->handed_on[scope]);
            if (any) write.handed_on[scope] = std::make_shared<const Clock>(std::move(all));
        }
        if (std::find(strong_words_.begin(), strong_words_.end(), address) == strong_words_.end())
            strong_words_.push_back(address);
    }
    word.writes.push_back(std::move(write));
    std::erase_if(word.readers, [&](const Reader& each) { return (each.bytes & ~bytes) == 0; });
    if (word.writes.size() > kWritesKept) word.writes.pop_front();
}

void Arena::store(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, const Order& order, const char* data) {
    for (uint64_t at = address / 4 * 4; at < address + bytes; at += 4)
        check(warp, lane, at, word_at(at), true, bytes_of_word(at, address, bytes), order);
    __builtin_memcpy(reinterpret_cast<char*>(address), data, bytes);
    const uint64_t operation = ++operations_;
    for (uint64_t at = address / 4 * 4; at < address + bytes; at += 4)
        append(warp, lane, at, bytes_of_word(at, address, bytes), order, false, operation);
}

void Arena::before_atomic(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, const Order& order) {
    for (uint64_t at = address / 4 * 4; at < address + bytes; at += 4) {
        Word& word = word_at(at);
        check(warp, lane, at, word, true, bytes_of_word(at, address, bytes), order);
        take_over(warp, lane, at, word.writes.back(), order);
    }
}

void Arena::after_atomic(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, const Order& order) {
    const uint64_t operation = ++operations_;
    for (uint64_t at = address / 4 * 4; at < address + bytes; at += 4)
        append(warp, lane, at, bytes_of_word(at, address, bytes), order, true, operation);
}

void Arena::fence(Warp& warp, uint32_t lanes, Scope scope, bool sequential) {
    const auto widest = static_cast<size_t>(scope);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const auto lane = unsigned(std::countr_zero(left));
        const uint32_t me = lane_of(warp, lane);
        LaneOrder& order = order_of(me);
        for (size_t i = 0; i <= widest; ++i) {
            learn(warp, 1u << lane, order.seen[i]);
            order.seen[i].clear();
        }
        if (sequential) {
            // All fences stand in one order: behind an earlier one, a lane sees no older writes than that one's lane.
            const size_t device = devices_.device_of(me) + 1;
            if (sequential_.size() <= device) sequential_.resize(device + 1);
            Clock agreed = sequential_[device];
            if (scope == Scope::sys) agreed.join(sequential_[0]);
            learn(warp, 1u << lane, agreed);
            for (const uint64_t address : strong_words_) {
                const Word& word = word_at(address);
                const Write& newest = word.writes[first_visible(warp, lane, address, word)];
                if (newest.lane != kNobody) agreed.set_floor(address / 4, newest.sequence);
            }
            sequential_[device].join(agreed);
            if (scope == Scope::sys) sequential_[0].join(agreed);
        }
        const auto now = std::make_shared<const Clock>(known(warp, lane));
        for (size_t i = 0; i <= widest; ++i) order.released[i] = now;
    }
}

}  // namespace deep_gemm::simulator
