// Uses of global memory by the lanes of one warp, between which nothing but a warp sync or a barrier makes an order.
//
// Only what the launch may write is followed, and only until the lanes have met.
#include <bit>
#include <unordered_map>

#include "../../../util/require.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

struct Touch {
    uint32_t write_tick = 0, read_tick = 0;
    uint32_t write_instruction = 0, read_instruction = 0;  // index + 1
    uint32_t readers = 0;
    uint8_t writer = 0;
    bool part_written = false, part_read = false;  // narrower than the word
};

struct TouchPage {
    Touch words[kPageWords];
};

constexpr size_t kMaxPages = 256;  // what is older than the last meeting need not be kept

}  // namespace

struct LaneTouches {
    std::unordered_map<uint64_t, std::unique_ptr<TouchPage>> pages;
    uint64_t last_number = ~uint64_t(0);
    TouchPage* last = nullptr;

    Touch& at(uint64_t address) {
        const uint64_t number = address / kPageBytes;
        if (number != last_number) {
            auto& page = pages[number];
            if (!page) page = std::make_unique<TouchPage>();
            last = page.get(), last_number = number;
        }
        return last->words[address / 4 % kPageWords];
    }
};

bool is_writable(const LaunchState& launch, uint64_t address) {
    auto after = std::upper_bound(launch.writable.begin(), launch.writable.end(), address,
                                  [](uint64_t a, const auto& range) { return a < range.first; });
    return after != launch.writable.begin() && address < std::prev(after)->second;
}

namespace {

void report_touch(Warp& warp, unsigned lane, uint64_t address, bool write, bool after_write, unsigned other,
                  uint32_t instruction) {
    const Cluster& cluster = *warp.cluster;
    report(*warp.cluster, kWarpSync,
           concat("global memory ", hex(address), " is ", write ? "written" : "read", " by ",
                  describe_agent(cluster, Agent(warp.agent + lane)), ", but no __syncwarp orders it after ",
                  after_write ? "the write" : "a read", " by another lane\n    earlier: ",
                  after_write ? "write" : "read", " by ", describe_agent(cluster, Agent(warp.agent + other)), " at ",
                  cluster.module->location(cluster.launch->entry->code[instruction - 1])),
           &warp);
}

void touch_word(Warp& warp, unsigned lane, uint64_t address, bool write, bool part, const View& view) {
    Touch& touch = warp.global_touches->at(address);
    const uint32_t instruction = warp.pc + 1;
    const bool together = write && touch.write_instruction == instruction;
    const auto unordered = [&](unsigned other, uint32_t tick) {
        return other != lane && tick > view.of(Agent(warp.agent + other));
    };
    if (touch.write_tick && !together && !(touch.part_written && part) && unordered(touch.writer, touch.write_tick))
        report_touch(warp, lane, address, write, true, touch.writer, touch.write_instruction);
    if (write && touch.read_tick && !(touch.part_read && part))
        for (uint32_t left = touch.readers; left; left &= left - 1) {
            const auto reader = unsigned(std::countr_zero(left));
            if (!unordered(reader, touch.read_tick)) continue;
            report_touch(warp, lane, address, true, false, reader, touch.read_instruction);
            break;
        }
    if (write) {
        touch.write_tick = warp.tick, touch.write_instruction = instruction;
        touch.writer = uint8_t(lane), touch.part_written = part;
        touch.readers = touch.read_tick = 0;
        return;
    }
    const bool again = touch.read_tick == warp.tick;
    touch.readers = again ? touch.readers | 1u << lane : 1u << lane;
    touch.part_read = part || (again && touch.part_read);
    touch.read_tick = warp.tick, touch.read_instruction = instruction;
}

}  // namespace

void touch_global(Warp& warp, unsigned lane, uint64_t address, uint32_t bytes, bool write) {
    if (!is_writable(*warp.cluster->launch, address)) return;
    if (write) check_copied_sources(warp, lane, address, bytes);
    if (!warp.global_touches) warp.global_touches = std::make_shared<LaneTouches>();
    const View view = view_of(warp, lane);
    for (uint64_t at = address & ~uint64_t(3); at < address + bytes; at += 4)
        touch_word(warp, lane, at, write, at < address || at + 4 > address + bytes, view);
}

void forget_touches(Warp& warp) {
    if (warp.global_touches && warp.global_touches->pages.size() > kMaxPages) warp.global_touches = nullptr;
}

}  // namespace deep_gemm::simulator
