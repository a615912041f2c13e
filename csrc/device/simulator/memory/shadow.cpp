// Who touched each word of shared memory last, and whether the next access is ordered after it.
//
// The check does not depend on the schedule: an access that no barrier orders is a race even when the numbers came out
// right. Writes are kept by word. Reads are kept by word and lane, those of asynchronous agents by 16-byte granule with
// a mask of words.
#include <bit>

#include "../../../util/require.hpp"
#include "memory.hpp"

namespace deep_gemm::simulator {

namespace {

const Instruction* instruction_at(const Cluster& cluster, uint32_t index_plus_one) {
    return index_plus_one ? &cluster.launch->entry->code[index_plus_one - 1] : nullptr;
}

uint32_t index_of(const Cluster& cluster, const Instruction* in) {
    return in ? uint32_t(in - cluster.launch->entry->code.data()) + 1 : 0;
}

std::string past_access(const Cluster& cluster, const char* what, Agent agent, uint32_t instruction) {
    const Instruction* in = instruction_at(cluster, instruction);
    return concat("\n    earlier: ", what, " by ", describe_agent(cluster, agent),
                  in ? concat(" at ", cluster.module->location(*in)) : std::string());
}

ReaderSlot& reader_slot(Cta& cta, Agent agent) {
    for (auto& slot : cta.readers)
        if (slot.agent == agent) return slot;
    auto& slot = cta.readers.emplace_back();
    slot.agent = agent;
    const size_t granules = cta.shared.size() / 16 + 1;
    slot.ticks.assign(granules, 0);
    slot.words.assign(granules, 0);
    slot.instructions.assign(granules, 0);
    return slot;
}

bool is_async_agent(const Cluster& cluster, Agent agent) { return agent >= cluster.lane_agents(); }

bool is_lane_of(const Warp* warp, Agent agent) { return warp && agent >= warp->agent && agent < warp->agent + kLanes; }

// Once its lane has waited for it, a copy by cp.async is as good as a store by that lane.
const char* kind_of_copy(const Warp& warp, Agent earlier, const SmallCopyState& state, const char* if_async) {
    if (!state.waited_for) return if_async;
    const SmallCopies* own = warp.small_copies.get();
    return own && earlier >= own->agent && earlier < own->agent + kLanes ? kWarpSync : "race";
}

const char* kind_of(const Warp& warp, Agent earlier, const SmallCopyState& state, const char* if_async) {
    if (state.is_one) return kind_of_copy(warp, earlier, state, if_async);
    if (is_lane_of(&warp, earlier)) return kWarpSync;
    return is_async_agent(*warp.cluster, earlier) ? if_async : "race";
}

// Of a cp.async: what its own lane has done about it.
std::string line_of(const SmallCopyState& copy) { return copy.is_one ? "\n    " + copy.text : copy.text; }

// What is missing before an access that comes after one by `earlier`.
std::string missing(const Warp& warp, Agent earlier, const char* after) {
    if (is_lane_of(&warp, earlier)) return concat(", but no __syncwarp orders it after ", after, " by another lane");
    return concat(", but nothing orders it after ", after);
}

WarpReads& reads_of(Cta& cta, const Warp& warp) {
    for (auto& reads : cta.warp_readers)
        if (reads.warp == warp.number) return reads;
    auto& reads = cta.warp_readers.emplace_back();
    reads.warp = warp.number;
    reads.pages.resize(cta.shared.size() / kPageBytes + 1);
    return reads;
}

void note_read(Warp& warp, unsigned lane, Cta& cta, uint32_t offset, uint32_t bytes, uint32_t instruction) {
    WarpReads& reads = reads_of(cta, warp);
    for (uint32_t at = offset & ~3u; at < offset + bytes; at += 4) {
        auto& page = reads.pages[at / kPageBytes];
        if (!page) page = std::make_unique<ReadPage>();
        const uint32_t word = at / 4 % kPageWords;
        const bool part = at < offset || at + 4 > offset + bytes, again = page->ticks[word] == warp.tick;
        page->lanes[word] = again ? page->lanes[word] | 1u << lane : 1u << lane;
        page->part[word] = part || (again && page->part[word]);
        page->ticks[word] = page->newest[word / 4] = warp.tick;
        page->instructions[word] = instruction;
    }
}

uint8_t granule_words(uint32_t granule, uint32_t offset, uint32_t bytes) {
    const uint32_t low = std::max(offset, granule * 16) / 4 % 4,
                   high = (std::min(offset + bytes, granule * 16 + 16) - 1) / 4 % 4;
    return uint8_t((0xf << low) & (0xf >> (3 - high)));
}

/// A write that is to be ordered after reads.
struct Writing {
    View at;
    Agent agent;
    const char* what;  // null for a lane's store
    const Warp* warp;
    const Instruction* instruction;
};

void report_overwrite(Cta& cta, uint32_t offset, const Writing& by, Agent reader, uint32_t instruction) {
    const bool same_warp = !by.what && is_lane_of(by.warp, reader);
    report(*cta.cluster, same_warp ? kWarpSync : "overwrite",
           concat("shared memory ", hex(offset), " of block ", cta.rank, " is written by ",
                  by.what ? std::string(by.what) : describe_agent(*cta.cluster, by.agent),
                  same_warp ? " after a read by another lane, but no __syncwarp orders the two"
                            : " while an earlier read may still be under way: nothing orders the two",
                  past_access(*cta.cluster, "read", reader, instruction)),
           by.warp, by.instruction);
}

void check_async_readers(Cta& cta, uint32_t offset, uint32_t bytes, const Writing& by) {
    const uint32_t first = offset / 16, last = (offset + bytes - 1) / 16;
    for (auto& slot : cta.readers) {
        const uint32_t known = slot.agent == by.agent ? ~0u : by.at.of(slot.agent);
        uint32_t newest = 0;
        for (uint32_t g = first; g <= last; ++g) newest = std::max(newest, slot.ticks[g]);
        if (newest == 0) continue;
        if (newest > known)
            for (uint32_t g = first; g <= last; ++g)
                if (slot.ticks[g] > known && slot.words[g] & granule_words(g, offset, bytes)) {
                    report_overwrite(cta, g * 16, by, slot.agent, slot.instructions[g]);
                    break;
                }
        const uint32_t whole_first = (offset + 15) / 16, whole_end = (offset + bytes) / 16;
        for (uint32_t g = whole_first; g < whole_end; ++g) slot.ticks[g] = 0, slot.words[g] = 0;
    }
}

// Reads of one granule of 16 bytes by the lanes of a warp. False after a report.
bool check_lanes(Cta& cta, uint32_t warp, const ReadPage& page, uint32_t granule, uint32_t offset, uint32_t bytes,
                 const Writing& by) {
    for (uint32_t at = std::max(granule * 16, offset & ~3u); at < std::min(granule * 16 + 16, offset + bytes);
         at += 4) {
        const uint32_t word = at / 4 % kPageWords;
        const bool part = at < offset || at + 4 > offset + bytes;
        if (page.part[word] && part) continue;
        for (uint32_t left = page.lanes[word]; left; left &= left - 1) {
            const auto reader = Agent(warp * kLanes + unsigned(std::countr_zero(left)));
            if (page.ticks[word] <= by.at.of(reader)) continue;
            report_overwrite(cta, at, by, reader, page.instructions[word]);
            return false;
        }
    }
    return true;
}

void check_warp_readers(Cta& cta, uint32_t offset, uint32_t bytes, const Writing& by) {
    const uint32_t first = offset / 16, last = (offset + bytes - 1) / 16;
    constexpr uint32_t kPageGranules = kPageWords / 4;
    for (auto& reads : cta.warp_readers) {
        const uint32_t known = by.at.clock->least<kLanes>(Agent(reads.warp * kLanes));  // of every lane
        bool good = true;
        for (uint32_t g = first; g <= last; ++g) {
            ReadPage* page = reads.pages[g / kPageGranules].get();
            if (!page) {
                g = g / kPageGranules * kPageGranules + kPageGranules - 1;
                continue;
            }
            uint32_t& newest = page->newest[g % kPageGranules];
            if (newest == 0) continue;
            if (newest > known && good) good = check_lanes(cta, reads.warp, *page, g, offset, bytes, by);
            if (g * 16 < offset || g * 16 + 16 > offset + bytes) continue;
            newest = 0;
            for (uint32_t word = g * 4; word < g * 4 + 4; ++word)
                page->ticks[word % kPageWords] = page->lanes[word % kPageWords] = 0;
        }
    }
}

// Is the write of [offset, offset + bytes) ordered after every earlier read? Then forget those reads.
void check_readers(Cta& cta, uint32_t offset, uint32_t bytes, const Writing& by) {
    check_async_readers(cta, offset, bytes, by);
    check_warp_readers(cta, offset, bytes, by);
}

// A live mbarrier is no place for data.
void check_mbarrier_overlap(Cta& cta, uint32_t offset, uint32_t bytes, const char* what, const Warp* warp,
                            const Instruction* in) {
    for (uint32_t slot = offset / 8; slot <= (offset + bytes - 1) / 8 && slot < cta.mbarrier_at.size(); ++slot)
        if (cta.mbarrier_at[slot] >= 0)
            report(*cta.cluster, "barrier reuse",
                   concat(what, " touches the live mbarrier at ", hex(slot * 8), " of block ", cta.rank), warp, in);
}

}  // namespace

bool initialised(const Cta& cta, uint32_t offset, uint32_t bytes) {
    for (uint32_t at = offset; at < offset + bytes;) {
        const WordState& word = cta.words[at / 4];
        if (at % 4 == 0 && at + 4 <= offset + bytes) {
            if (word.initialised != 0xf) return false;
            at += 4;
        } else {
            if (!(word.initialised >> (at % 4) & 1)) return false;
            ++at;
        }
    }
    return true;
}

void mark_initialised(Cta& cta, uint32_t offset, uint32_t bytes) {
    for (uint32_t at = offset; at < offset + bytes; ++at) cta.words[at / 4].initialised |= 1u << at % 4;
}

void note_remote(Warp& warp, unsigned lane, Cta& cta, const Instruction& in) {
    if (&cta == warp.cta) return;
    if (cta.exited)
        report(*warp.cluster, "early exit",
               concat("block ", cta.rank, " of the cluster has exited, but its shared memory is accessed"), &warp, &in);
    const size_t agent = warp.agent + lane;
    if (agent >= cta.remote_access.size()) {
        cta.remote_access.resize(agent + 1);
        cta.remote_instruction.resize(agent + 1);
    }
    cta.remote_access[agent] = warp.tick;
    cta.remote_instruction[agent] = index_of(*warp.cluster, &in);
}

bool shared_read(Warp& warp, unsigned lane, Cta& cta, uint32_t offset, uint32_t bytes, bool atomic) {
    Cluster& cluster = *warp.cluster;
    const Instruction& in = warp.instruction();
    note_remote(warp, lane, cta, in);
    const View view = view_of(warp, lane);
    bool good = true;
    for (uint32_t at = offset & ~3u; at < offset + bytes; at += 4) {
        const WordState& word = cta.words[at / 4];
        if (word.tick > view.of(word.agent) && !(word.atomic && atomic) && !(word.part && bytes < 4)) {
            const SmallCopyState copy = small_copy_state(cluster, word.agent, word.tick);
            report(cluster, kind_of(warp, word.agent, copy, "read in flight"),
                   concat("shared memory ", hex(at), " of block ", cta.rank, " is read by ",
                          describe_agent(cluster, view.self),
                          !is_async_agent(cluster, word.agent) || copy.waited_for
                              ? missing(warp, word.agent, "the write")
                          : copy.is_one ? ", but the copy that writes it may still be under way"
                                        : ", but it has not waited for the copy that writes it",
                          line_of(copy), past_access(cluster, "write", word.agent, word.instruction)),
                   &warp);
        }
        const uint32_t low = at < offset ? offset - at : 0, high = std::min(4u, offset + bytes - at);
        const uint32_t wanted = (0xfu << low) & (0xfu >> (4 - high)) & 0xf;
        good &= (word.initialised & wanted) == wanted;
    }
    if (!atomic) note_read(warp, lane, cta, offset, bytes, index_of(cluster, &in));
    if (cta.find_mbarrier(offset & ~7u)) check_mbarrier_overlap(cta, offset, bytes, "a load", &warp, &in);
    return good;
}

void shared_write(Warp& warp, unsigned lane, Cta& cta, uint32_t offset, uint32_t bytes, bool initialised, bool atomic) {
    Cluster& cluster = *warp.cluster;
    const Instruction& in = warp.instruction();
    note_remote(warp, lane, cta, in);
    check_mbarrier_overlap(cta, offset, bytes, "a store", &warp, &in);
    const View view = view_of(warp, lane);
    const uint32_t index = index_of(cluster, &in);
    for (uint32_t at = offset & ~3u; at < offset + bytes; at += 4) {
        WordState& word = cta.words[at / 4];
        const bool part = at < offset || at + 4 > offset + bytes;
        // Which of the lanes that store by one instruction comes last is no matter of order.
        const bool together = word.instruction == index && is_lane_of(&warp, word.agent);
        if (word.tick > view.of(word.agent) && !together && !(word.atomic && atomic) && !(word.part && part)) {
            const SmallCopyState copy = small_copy_state(cluster, word.agent, word.tick);
            report(cluster, kind_of(warp, word.agent, copy, "overwrite"),
                   concat("shared memory ", hex(at), " of block ", cta.rank, " is written by ",
                          describe_agent(cluster, view.self), missing(warp, word.agent, "another write"), line_of(copy),
                          past_access(cluster, "write", word.agent, word.instruction)),
                   &warp);
        }
        const uint32_t low = at < offset ? offset - at : 0, high = std::min(4u, offset + bytes - at);
        const uint32_t touched = (0xfu << low) & (0xfu >> (4 - high)) & 0xf;
        word.initialised = initialised ? word.initialised | touched : word.initialised & ~touched;
        word.swizzle = kNoSwizzleKnown;
        word.tick = warp.tick, word.agent = view.self, word.generic = 1, word.part = part, word.atomic = atomic;
        word.small_copy = 0;
        word.instruction = index;
    }
    if (!atomic) check_readers(cta, offset, bytes, {view, view.self, nullptr, &warp, &in});
}

namespace {

void report_unordered_read(const AsyncAccess& access, const Cta& cta, uint32_t at, const WordState& word) {
    Cluster& cluster = *access.cluster;
    const bool own = is_lane_of(access.warp, word.agent);
    uint32_t issued = 0;  // when the warp issued it: a later store of its own has overtaken the read
    for (unsigned lane = 0; own && lane < kLanes; ++lane)
        issued = std::max(issued, access.at->of(Agent(access.warp->agent + lane)));
    const bool overtaken = own && word.tick > issued;
    report(cluster,
           is_async_agent(cluster, word.agent) ? "read in flight"
           : overtaken                         ? "overwrite"
           : own                               ? kWarpSync
                                               : "race",
           concat("shared memory ", hex(at), " of block ", cta.rank, " is read by ", access.what,
                  own && !overtaken ? missing(*access.warp, word.agent, "the write")
                                    : std::string(", but nothing orders it after the write"),
                  past_access(cluster, "write", word.agent, word.instruction)),
           access.warp, access.instruction);
}

}  // namespace

void async_read(const AsyncAccess& access, Cta& cta, uint32_t offset, uint32_t bytes) {
    Cluster& cluster = *access.cluster;
    Agent checked_agent = 0xffff;
    uint32_t checked_tick = 0;
    bool checked_generic = false;
    for (uint32_t at = offset & ~3u; at < offset + bytes; at += 4) {
        const WordState& word = cta.words[at / 4];
        if (word.agent == checked_agent && word.tick == checked_tick && word.generic == checked_generic) continue;
        checked_agent = word.agent, checked_tick = word.tick, checked_generic = word.generic;
        if (word.tick == 0) continue;
        if (access.swizzle != kNoSwizzleKnown && word.swizzle != kNoSwizzleKnown && access.swizzle != word.swizzle) {
            constexpr const char* kNames[] = {"no", "32-byte", "64-byte", "128-byte"};
            report(cluster, "swizzle",
                   concat("shared memory ", hex(at), " of block ", cta.rank, " was written by a copy with ",
                          kNames[word.swizzle & 3], " swizzle and is read by ", access.what, " with ",
                          kNames[access.swizzle & 3], " swizzle",
                          past_access(cluster, "write", word.agent, word.instruction)),
                   access.warp, access.instruction);
        }
        if (word.tick > access.at->of(word.agent))
            report_unordered_read(access, cta, at, word);
        else if (word.generic && word.tick > access.at->fenced_of(word.agent) &&
                 !(word.small_copy && cluster.by_hardware()))
            report(cluster, "proxy fence",
                   concat("shared memory ", hex(at), " of block ", cta.rank,
                          " was written by ordinary stores and is read by ", access.what,
                          " without fence.proxy.async between them",
                          past_access(cluster, "write", word.agent, word.instruction)),
                   access.warp, access.instruction);
    }
    ReaderSlot& slot = reader_slot(cta, access.agent);
    for (uint32_t g = offset / 16; g <= (offset + bytes - 1) / 16; ++g) {
        slot.words[g] |= granule_words(g, offset, bytes);
        slot.ticks[g] = access.tick;
        slot.instructions[g] = index_of(cluster, access.instruction);
    }
}

void async_write(const AsyncAccess& access, Cta& cta, uint32_t offset, uint32_t bytes) {
    Cluster& cluster = *access.cluster;
    check_mbarrier_overlap(cta, offset, bytes, access.what, access.warp, access.instruction);
    const uint32_t index = index_of(cluster, access.instruction);
    Agent checked_agent = 0xffff;
    uint32_t checked_tick = 0;
    bool checked_generic = false;
    for (uint32_t at = offset; at < offset + bytes; at += 4) {
        WordState& word = cta.words[at / 4];
        if (word.agent != checked_agent || word.tick != checked_tick || word.generic != checked_generic) {
            checked_agent = word.agent, checked_tick = word.tick, checked_generic = word.generic;
            const bool same_phase = word.agent == access.agent && word.tick == access.tick;
            // Lanes that copy to one place by one cp.async: which comes last is no matter of order.
            const bool together =
                access.generic && word.small_copy && word.instruction == index && word.tick == access.tick;
            if (word.tick > access.at->of(word.agent) && !same_phase && !together)
                report(cluster, "overwrite",
                       concat("shared memory ", hex(at), " of block ", cta.rank, " is written by ", access.what,
                              ", but nothing orders it after an earlier write",
                              past_access(cluster, "write", word.agent, word.instruction)),
                       access.warp, access.instruction);
            else if (word.tick && word.generic && !access.generic && word.tick > access.at->fenced_of(word.agent))
                report(cluster, "proxy fence",
                       concat("shared memory ", hex(at), " of block ", cta.rank,
                              " was written by ordinary stores and is overwritten by ", access.what,
                              " without fence.proxy.async between them",
                              past_access(cluster, "write", word.agent, word.instruction)),
                       access.warp, access.instruction);
        }
        word = {access.tick, access.agent, access.generic, 0, 0, access.generic, 0xf, access.swizzle, index};
    }
    check_readers(cta, offset, bytes, {{access.at}, access.agent, access.what, access.warp, access.instruction});
}

void mark_tainted(Warp& warp, const Operand& operand, uint32_t lanes) {
    if (!warp.any_tainted) {
        if (!lanes) return;
        warp.any_tainted = true;
        warp.tainted.assign(warp.entry->register_count, 0);
    }
    if (operand.id < warp.tainted.size()) warp.tainted[operand.id] |= lanes;
}

void set_tainted(Warp& warp, const Operand& operand, uint32_t lanes) {
    if (warp.any_tainted && operand.id < warp.tainted.size()) warp.tainted[operand.id] = 0;
    mark_tainted(warp, operand, lanes);
}

}  // namespace deep_gemm::simulator
