// Who touched each word of shared memory last, and whether the next access is ordered after it.
//
// The check does not depend on the schedule: an access that no barrier orders is a race even when the numbers came out
// right. Writes are kept by word, reads by 16-byte granule with a mask of words.
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
    return concat("\n    earlier: ", what, " by ",
                  agent < cluster.agent_names.size() ? cluster.agent_names[agent] : "?",
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

bool is_async_agent(const Cluster& cluster, Agent agent) {
    return agent < cluster.agent_names.size() && cluster.agent_names[agent].rfind("warp", 0) != 0;
}

uint8_t granule_words(uint32_t granule, uint32_t offset, uint32_t bytes) {
    const uint32_t low = std::max(offset, granule * 16) / 4 % 4,
                   high = (std::min(offset + bytes, granule * 16 + 16) - 1) / 4 % 4;
    return uint8_t((0xf << low) & (0xf >> (3 - high)));
}

// Is the write of [offset, offset + bytes) ordered after every earlier read? Then forget those reads.
void check_readers(Cta& cta, uint32_t offset, uint32_t bytes, const Clock& at, Agent self, const std::string& who,
                   const Warp* warp, const Instruction* in) {
    const uint32_t first = offset / 16, last = (offset + bytes - 1) / 16;
    for (auto& slot : cta.readers) {
        const uint32_t known = slot.agent == self ? ~0u : at.of(slot.agent);
        uint32_t newest = 0;
        for (uint32_t g = first; g <= last; ++g) newest = std::max(newest, slot.ticks[g]);
        if (newest == 0) continue;
        if (newest > known)
            for (uint32_t g = first; g <= last; ++g)
                if (slot.ticks[g] > known && slot.words[g] & granule_words(g, offset, bytes)) {
                    report(*cta.cluster, "overwrite",
                           concat("shared memory ", hex(g * 16), " of block ", cta.rank, " is written by ", who,
                                  " while an earlier read may still be under way: nothing orders the two",
                                  past_access(*cta.cluster, "read", slot.agent, slot.instructions[g])),
                           warp, in);
                    break;
                }
        const uint32_t whole_first = (offset + 15) / 16, whole_end = (offset + bytes) / 16;
        for (uint32_t g = whole_first; g < whole_end; ++g) slot.ticks[g] = 0, slot.words[g] = 0;
    }
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

void note_remote(Warp& warp, Cta& cta, const Instruction& in) {
    if (&cta == warp.cta) return;
    if (cta.exited)
        report(*warp.cluster, "early exit",
               concat("block ", cta.rank, " of the cluster has exited, but its shared memory is accessed"), &warp, &in);
    if (warp.agent >= cta.remote_access.size()) {
        cta.remote_access.resize(warp.agent + 1);
        cta.remote_instruction.resize(warp.agent + 1);
    }
    cta.remote_access[warp.agent] = warp.clock.of(warp.agent);
    cta.remote_instruction[warp.agent] = index_of(*warp.cluster, &in);
}

bool shared_read(Warp& warp, Cta& cta, uint32_t offset, uint32_t bytes, bool atomic) {
    Cluster& cluster = *warp.cluster;
    const Instruction& in = warp.instruction();
    note_remote(warp, cta, in);
    ReaderSlot& slot = reader_slot(cta, warp.agent);
    const uint32_t tick = warp.clock.of(warp.agent);
    bool good = true;
    for (uint32_t at = offset & ~3u; at < offset + bytes; at += 4) {
        const WordState& word = cta.words[at / 4];
        if (word.tick > warp.clock.of(word.agent) && word.agent != warp.agent && !(word.atomic && atomic) &&
            !(word.part && bytes < 4))
            report(cluster, is_async_agent(cluster, word.agent) ? "read in flight" : "race",
                   concat("shared memory ", hex(at), " of block ", cta.rank, " is read by ", describe_warp(warp),
                          is_async_agent(cluster, word.agent) ? ", but it has not waited for the copy that writes it"
                                                              : ", but nothing orders the read after the write",
                          past_access(cluster, "write", word.agent, word.instruction)),
                   &warp);
        const uint32_t low = at < offset ? offset - at : 0, high = std::min(4u, offset + bytes - at);
        const uint32_t wanted = (0xfu << low) & (0xfu >> (4 - high)) & 0xf;
        good &= (word.initialised & wanted) == wanted;
    }
    if (!atomic)
        for (uint32_t g = offset / 16; g <= (offset + bytes - 1) / 16; ++g) {
            const uint8_t words = granule_words(g, offset, bytes);
            slot.words[g] = slot.ticks[g] == tick ? slot.words[g] | words : words;
            slot.ticks[g] = tick;
            slot.instructions[g] = index_of(cluster, &in);
        }
    if (cta.find_mbarrier(offset & ~7u)) check_mbarrier_overlap(cta, offset, bytes, "a load", &warp, &in);
    return good;
}

void shared_write(Warp& warp, Cta& cta, uint32_t offset, uint32_t bytes, bool initialised, bool atomic) {
    Cluster& cluster = *warp.cluster;
    const Instruction& in = warp.instruction();
    note_remote(warp, cta, in);
    check_mbarrier_overlap(cta, offset, bytes, "a store", &warp, &in);
    const uint32_t tick = warp.clock.of(warp.agent);
    for (uint32_t at = offset & ~3u; at < offset + bytes; at += 4) {
        WordState& word = cta.words[at / 4];
        const bool part = at < offset || at + 4 > offset + bytes;
        if (word.tick > warp.clock.of(word.agent) && word.agent != warp.agent && !(word.atomic && atomic) &&
            !(word.part && part))
            report(cluster, is_async_agent(cluster, word.agent) ? "overwrite" : "race",
                   concat("shared memory ", hex(at), " of block ", cta.rank, " is written by ", describe_warp(warp),
                          ", but nothing orders it after another write",
                          past_access(cluster, "write", word.agent, word.instruction)),
                   &warp);
        const uint32_t low = at < offset ? offset - at : 0, high = std::min(4u, offset + bytes - at);
        const uint32_t touched = (0xfu << low) & (0xfu >> (4 - high)) & 0xf;
        word.initialised = initialised ? word.initialised | touched : word.initialised & ~touched;
        word.swizzle = kNoSwizzleKnown;
        word.tick = tick, word.agent = warp.agent, word.generic = 1, word.part = part, word.atomic = atomic;
        word.small_copy = 0;
        word.instruction = index_of(cluster, &in);
    }
    if (!atomic) check_readers(cta, offset, bytes, warp.clock, warp.agent, describe_warp(warp), &warp, &in);
}

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
            // A later store of the issuing warp itself has overtaken the read.
            report(cluster,
                   is_async_agent(cluster, word.agent)               ? "read in flight"
                   : access.warp && word.agent == access.warp->agent ? "overwrite"
                                                                     : "race",
                   concat("shared memory ", hex(at), " of block ", cta.rank, " is read by ", access.what,
                          ", but nothing orders it after the write",
                          past_access(cluster, "write", word.agent, word.instruction)),
                   access.warp, access.instruction);
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
            if (word.tick > access.at->of(word.agent) && !same_phase)
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
    check_readers(cta, offset, bytes, *access.at, access.agent, access.what, access.warp, access.instruction);
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
