// Vector clocks: what each agent is known to have done.
//
// Agents are the lanes of warps (of all warps, they come first), the matrix units of warpgroups, the bulk copies that
// read for a warp, and mbarriers (the agent of the copies that complete on them). An access (agent, tick) is ordered
// before a thread's next step when the thread's clock of that agent has reached the tick. `fenced` is the same for what
// a proxy fence has made visible to asynchronous readers.
//
// Where several devices run together, `far` is the same for the lanes of all of them, and `floors` are the writes to
// words of shared memory, by their numbers, behind which a lane sees no older ones (memory/arena.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace deep_gemm::simulator {

using Agent = uint16_t;

struct Clock {
    std::vector<uint32_t> seen, fenced, far;
    std::vector<std::pair<uint64_t, uint32_t>> floors;  // sorted by word

    uint32_t of(Agent agent) const { return agent < seen.size() ? seen[agent] : 0; }
    uint32_t fenced_of(Agent agent) const { return agent < fenced.size() ? fenced[agent] : 0; }
    void set(Agent agent, uint32_t tick) { raise(seen, agent, tick); }
    void set_fenced(Agent agent, uint32_t tick) { raise(fenced, agent, tick); }
    uint32_t far_of(uint32_t lane) const { return lane < far.size() ? far[lane] : 0; }
    void set_far(uint32_t lane, uint32_t tick) { raise(far, lane, tick); }
    uint32_t floor_of(uint64_t word) const {
        const auto found = std::lower_bound(floors.begin(), floors.end(), std::pair(word, uint32_t(0)));
        return found != floors.end() && found->first == word ? found->second : 0;
    }
    void set_floor(uint64_t word, uint32_t write) {
        const auto found = std::lower_bound(floors.begin(), floors.end(), std::pair(word, uint32_t(0)));
        if (found != floors.end() && found->first == word)
            found->second = std::max(found->second, write);
        else
            floors.insert(found, {word, write});
    }
    /// What is known of other devices.
    Clock far_part() const {
        Clock part;
        part.far = far, part.floors = floors;
        return part;
    }
    void drop_far() { far.clear(), floors.clear(); }
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
        if (!other.far.empty()) join_rows(far, other.far);
        for (const auto& [word, write] : other.floors) set_floor(word, write);
    }
    void clear() { seen.clear(), fenced.clear(), drop_far(); }
    /// Keep what both know.
    void meet(const Clock& other) {
        meet_rows(seen, other.seen);
        meet_rows(fenced, other.fenced);
        meet_rows(far, other.far);
        std::erase_if(floors, [&](auto& floor) {
            floor.second = std::min(floor.second, other.floor_of(floor.first));
            return floor.second == 0;
        });
    }

private:
    static void raise(std::vector<uint32_t>& row, uint32_t agent, uint32_t tick) {
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
