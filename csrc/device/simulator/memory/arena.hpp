// Memory that several devices share, by the PTX memory model: who may see which write, and what nothing orders.
//
// Each word keeps its latest writes. A read may see any write that is not older than one its lane knows of, so a write
// reaches other devices late, and two of them in either order; the schedule chooses. A release hands on what a lane
// knows, an acquire that sees it takes that over, if the scopes of both include each other.
#pragma once

#include <deque>
#include <span>
#include <unordered_map>

#include "../core/devices.hpp"
#include "../core/parser.hpp"

namespace deep_gemm::simulator {

/// What an access says of its order. Weak ones say nothing.
struct Order {
    bool strong = false, acquire = false, release = false;
    Scope scope = Scope::sys;
};

class Arena {
public:
    Arena(Devices& devices, std::span<const Extent> shared)
        : devices_(devices), shared_(shared.begin(), shared.end()) {}

    bool holds(uint64_t address) const;
    /// `data`: the bytes that the lane sees. `element_bytes` of them come from one write at a time.
    void load(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, unsigned element_bytes, const Order& order,
              char* data);
    void store(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, const Order& order, const char* data);
    /// What a copy reads for this lane: as the latest write left it. Reports writes that its lane does not know of, or
    /// has learnt of behind its last fence for copies.
    void read_for_copy(Warp& warp, unsigned lane, uint64_t address, unsigned bytes);
    /// fence.proxy.async, of memory: copies of these lanes may read what they know of.
    void fence_for_copies(Warp& warp, uint32_t lanes);
    /// Around an atomic update of memory itself, which always meets the latest write.
    void before_atomic(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, const Order& order);
    void after_atomic(Warp& warp, unsigned lane, uint64_t address, unsigned bytes, const Order& order);
    /// fence.acq_rel, or fence.sc, of these lanes.
    void fence(Warp& warp, uint32_t lanes, Scope scope, bool sequential);

private:
    static constexpr unsigned kScopes = 4;
    struct Write {
        uint32_t value, sequence, lane, tick;
        uint64_t operation;
        bool strong;
        Scope scope;
        uint8_t bytes;  // of the word that it has written: a bit each
        const Instruction* instruction;
        std::shared_ptr<const Clock> handed_on[kScopes];  // to lanes that are so far away
    };
    struct Reader {
        uint32_t lane, tick;
        bool strong;
        Scope scope;
        uint8_t bytes;
        const Instruction* instruction;
    };
    struct Word {
        std::deque<Write> writes;     // the latest ones; the first of all is what memory held at the beginning
        std::vector<Reader> readers;  // since the last write
        uint32_t sequence = 0;
        std::unordered_map<uint32_t, uint32_t> late;  // by lane: how often it has seen an old write
    };
    struct LaneOrder {
        std::shared_ptr<const Clock> released[kScopes];  // by its last fence
        Clock seen[kScopes];                             // by relaxed reads, for its next fence
        Clock for_copies;                                // by its last fence for them
    };

    Word& word_at(uint64_t address);
    uint32_t lane_of(const Warp& warp, unsigned lane) const { return warp.far_agent + lane; }
    LaneOrder& order_of(uint32_t lane);
    /// The first write that a lane may still see.
    size_t first_visible(const Warp& warp, unsigned lane, uint64_t address, const Word& word) const;
    size_t choose(Word& word, uint32_t lane, size_t first);
    /// Reports what nothing orders this access after; the first of it.
    void check(Warp& warp, unsigned lane, uint64_t address, const Word& word, bool write, uint8_t bytes,
               const Order& order);
    void take_over(Warp& warp, unsigned lane, uint64_t address, const Write& write, const Order& order);
    void note_reader(const Warp& warp, unsigned lane, Word& word, uint8_t bytes, const Order& order);
    void append(Warp& warp, unsigned lane, uint64_t address, uint8_t bytes, const Order& order, bool atomic,
                uint64_t operation);

    Devices& devices_;
    std::vector<Extent> shared_;
    std::unordered_map<uint64_t, Word> words_;  // by address / 4
    std::unordered_map<uint32_t, LaneOrder> orders_;
    std::vector<uint64_t> strong_words_;                     // by address
    std::vector<Clock> sequential_ = std::vector<Clock>(1);  // of all devices, then of each: what fence.sc agreed on
    uint64_t operations_ = 0;
};

/// What a modifier names, or `otherwise`.
Scope take_scope(Decoder& decoder, Scope otherwise);

/// What these lanes know and did, into the cluster's clock for memory: what is theirs alone, and what is of other
/// devices.
void release_near(Warp& warp, uint32_t lanes);
void release_far(Warp& warp, uint32_t lanes);

/// The arena that an address lies in, or null.
inline Arena* arena_at(const Cluster& cluster, uint64_t address) {
    Devices* devices = cluster.launch->devices;
    return devices && devices->arena->holds(address) ? devices->arena.get() : nullptr;
}

}  // namespace deep_gemm::simulator
