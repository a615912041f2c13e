// Vector clocks: what each agent is known to have done.
//
// Agents are the lanes of warps (of all warps, they come first), the matrix units of warpgroups, the bulk copies that
// read for a warp, and mbarriers (the agent of the copies that complete on them). An access (agent, tick) is ordered
// before a thread's next step when the thread's clock of that agent has reached the tick. `fenced` is the same for what
// a proxy fence has made visible to asynchronous readers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace deep_gemm::simulator {

using Agent = uint16_t;

struct Clock {
    std::vector<uint32_t> seen, fenced;

    uint32_t of(Agent agent) const { return agent < seen.size() ? seen[agent] : 0; }
    uint32_t fenced_of(Agent agent) const { return agent < fenced.size() ? fenced[agent] : 0; }
    void set(Agent agent, uint32_t tick) { raise(seen, agent, tick); }
    void set_fenced(Agent agent, uint32_t tick) { raise(fenced, agent, tick); }
    /// What is known of each of kCount agents from `first` on.
    template <unsigned kCount>
    uint32_t least(Agent first) const {
        if (size_t(first) + kCount > seen.size()) return 0;
        using Ticks = uint32_t __attribute__((vector_size(32)));
        constexpr unsigned kTogether = sizeof(Ticks) / sizeof(uint32_t);
        static_assert(kCount % kTogether == 0);
        Ticks least;
        std::memcpy(&least, &seen[first], sizeof(least));
        for (unsigned i = kTogether; i < kCount; i += kTogether) {
            Ticks ticks;
            std::memcpy(&ticks, &seen[first + i], sizeof(ticks));
            least = ticks < least ? ticks : least;
        }
        uint32_t found = least[0];
        for (unsigned i = 1; i < kTogether; ++i) found = std::min(found, least[i]);
        return found;
    }
    void join(const Clock& other) {
        join_rows(seen, other.seen);
        join_rows(fenced, other.fenced);
    }
    void clear() { seen.clear(), fenced.clear(); }
    /// Keep what both know.
    void meet(const Clock& other) {
        meet_rows(seen, other.seen);
        meet_rows(fenced, other.fenced);
    }

private:
    static void raise(std::vector<uint32_t>& row, Agent agent, uint32_t tick) {
        if (agent >= row.size()) row.resize(agent + 16);
        row[agent] = std::max(row[agent], tick);
    }
    static void join_rows(std::vector<uint32_t>& mine, const std::vector<uint32_t>& theirs) {
        if (mine.size() < theirs.size()) mine.resize(theirs.size());
        for (size_t i = 0; i < theirs.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
    }
    static void meet_rows(std::vector<uint32_t>& mine, const std::vector<uint32_t>& theirs) {
        if (mine.size() > theirs.size()) mine.resize(theirs.size());
        for (size_t i = 0; i < mine.size(); ++i) mine[i] = std::min(mine[i], theirs[i]);
    }
};

}  // namespace deep_gemm::simulator
