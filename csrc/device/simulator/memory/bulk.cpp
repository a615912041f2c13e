// Copies of plain byte ranges, bulk groups, st.async; when copies start and end.
#include <cstring>

#include "../../../util/require.hpp"
#include "copy_engine.hpp"

namespace deep_gemm::simulator {

namespace {

BulkGroups& bulk_groups(Warp& w, unsigned lane) {
    if (!w.bulk[lane]) w.bulk[lane] = std::make_unique<BulkGroups>();
    return *w.bulk[lane];
}

}  // namespace

bool barrier_operand(Warp& w, const Operand& operand, int64_t displacement, unsigned lane, Place& place) {
    const uint64_t address = read_any(w, operand, lane) + uint64_t(displacement);
    place = shared_place(w, uint32_t(address), 8, false, "mbarrier of a copy");
    return place.cta != nullptr;
}

void defer_arrival(Warp& w, const Instruction& in, unsigned lane, Cta& cta, uint32_t destination, uint32_t bytes,
                   uint32_t counted, Cta& barrier_cta, uint32_t barrier_offset, const char* what,
                   std::function<void(Cta&, uint32_t)> write, uint8_t swizzle) {
    Cluster& cluster = *w.cluster;
    Mbarrier* barrier = barrier_at(cluster, barrier_cta, barrier_offset, view_of(w, lane), &w, nullptr, true);
    if (!barrier) return;
    auto known = std::make_shared<Clock>(released(w, 1u << lane));
    const uint32_t far_lane = w.far_agent + lane, issued = w.tick;
    tick(w);  // what the warp does from here on may overtake the copy
    cluster.statistics.tma_load_bytes += counted;
    Cta *target = &cta, *holder = &barrier_cta;
    Warp* warp = &w;
    cluster.defer({[=, &cluster, &in, write = std::move(write)] {
                       Mbarrier* now = holder->find_mbarrier(barrier_offset);
                       if (!now) {
                           report(cluster, "barrier reuse",
                                  "the mbarrier of a copy is gone before the copy is complete", warp, &in);
                           return;
                       }
                       if (target->exited)
                           report(cluster, "early exit",
                                  concat("a copy arrives in block ", target->rank, ", which has exited"), warp, &in);
                       now->last_write = uint32_t(now->phase + 1);
                       now->last_copy = &in;
                       // What blocks exchange has been read when the copy is there.
                       if (cluster.launch->devices) now->arriving.set_far(far_lane, issued);
                       async_write({&cluster, known.get(), now->agent, now->last_write, &in, warp, what, swizzle},
                                   *target, destination, bytes);
                       write(*target, destination);
                       complete_bytes(cluster, *holder, *now, counted);
                   },
                   &in, warp, what});
}

void defer_departure(Warp& w, const Instruction& in, unsigned lane, uint32_t source, uint32_t bytes, const char* what,
                     std::function<std::vector<char>(Cta&)> read, std::function<void(std::vector<char>&)> write) {
    Cluster& cluster = *w.cluster;
    BulkGroups& groups = bulk_groups(w, lane);
    if (!groups.open) groups.open = std::make_shared<BulkGroups::Group>();
    auto group = groups.open;
    const uint32_t sequence = ++w.bulk_sequence;
    w.bulk_open.insert(sequence);
    group->sequences.push_back(sequence);
    ++group->reads_left;
    ++group->writes_left;
    cluster.statistics.tma_store_bytes += bytes;
    auto known = std::make_shared<Clock>(released(w, 1u << lane));
    tick(w);  // what the warp does from here on may overtake the copy
    Warp* warp = &w;
    cluster.defer({[=, &cluster, &in, read = std::move(read), write = std::move(write)] {
                       Cta& cta = *warp->cta;
                       async_read({&cluster, known.get(), warp->bulk_agent, sequence, &in, warp, what}, cta, source,
                                  bytes);
                       auto data = std::make_shared<std::vector<char>>(read(cta));
                       --group->reads_left;
                       ++cluster.progress;
                       cluster.defer({[=, &cluster] {
                                          write(*data);
                                          --group->writes_left;
                                          ++cluster.progress;
                                      },
                                      &in, warp, what});
                   },
                   &in, warp, what});
}

void check_initialised(Warp* warp, const Instruction* in, Cta& cta, uint32_t offset, uint32_t bytes) {
    if (!initialised(cta, offset, bytes))
        report(*cta.cluster, "uninitialised",
               concat("a copy to global memory reads shared memory ", hex(offset), " of block ", cta.rank,
                      " that was never written"),
               warp, in);
}

Step linear_copy(Warp& w, const Instruction& in, uint32_t lanes) {
    Cluster& cluster = *w.cluster;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        ++cluster.statistics.tma_copies;
        const uint64_t to = read_any(w, in.a, lane) + uint64_t(in.displacement),
                       from = read_any(w, in.b, lane) + uint64_t(in.displacement2);
        const uint32_t bytes = w.row<uint32_t>(in.d)[lane];
        if (bytes % 16 || to % 16 || from % 16) {
            report(cluster, "misaligned",
                   concat("a bulk copy of ", bytes, " bytes from ", hex(from), " to ", hex(to),
                          ": all three must be multiples of 16"),
                   &w);
            continue;
        }
        if (bytes == 0) continue;
        const Type type = Type(in.flags >> kTypeOf & 255);
        const int operation = int(in.flags >> kOperationOf & 15);
        Warp* warp = &w;
        if (in.flags & kToShared && !(in.flags & kFromShared)) {
            char* data = global_range(cluster, from, bytes, false, &w, nullptr);
            const Place place = shared_place(w, uint32_t(to), bytes, in.flags & kOwnDestination, "bulk copy");
            Place barrier;
            if (!data || !place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
            const uint32_t mask = in.flags & kMulticast ? w.row<uint32_t>(in.c)[lane] & 0xffff : 1u << place.cta->rank;
            for (auto& cta : cluster.ctas)
                if (mask >> cta->rank & 1)
                    defer_arrival(w, in, lane, *cta, place.offset, bytes, bytes, *cta, barrier.offset, "a bulk copy",
                                  [=](Cta& target, uint32_t destination) {
                                      std::memcpy(target.shared.data() + destination, data, bytes);
                                  });
        } else if (in.flags & kToShared) {  // to the shared memory of another block
            const Place source = shared_place(w, uint32_t(from), bytes, true, "bulk copy"),
                        place = shared_place(w, uint32_t(to), bytes, false, "bulk copy");
            Place barrier;
            if (!source.cta || !place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
            const auto known = std::make_shared<Clock>(released(w, 1u << lane));
            const uint32_t sequence = ++w.bulk_sequence;
            const bool reduce = in.flags & kReduce;
            defer_arrival(w, in, lane, *place.cta, place.offset, bytes, bytes, *place.cta, barrier.offset,
                          "a bulk copy", [=, &cluster, &in](Cta& target, uint32_t destination) {
                              async_read({&cluster, known.get(), warp->bulk_agent, sequence, &in, warp, "a bulk copy"},
                                         *source.cta, source.offset, bytes);
                              if (!reduce)
                                  std::memcpy(target.shared.data() + destination, source.data, bytes);
                              else
                                  for (uint32_t x = 0; x < bytes; x += type_bytes(type))
                                      reduce_memory(target.shared.data() + destination + x, type, operation,
                                                    source.data + x);
                          });
        } else {
            char* data = global_range(cluster, to, bytes, true, &w, nullptr);
            const Place place = shared_place(w, uint32_t(from), bytes, true, "bulk copy");
            if (!data || !place.cta) continue;
            const uint32_t source = place.offset;
            const bool reduce = in.flags & kReduce;
            defer_departure(
                w, in, lane, source, bytes, "a bulk store",
                [=, &in](Cta& cta) {
                    check_initialised(warp, &in, cta, source, bytes);
                    return std::vector<char>(cta.shared.data() + source, cta.shared.data() + source + bytes);
                },
                [=](std::vector<char>& copied) {
                    if (!reduce)
                        std::memcpy(data, copied.data(), bytes);
                    else
                        for (uint32_t x = 0; x < bytes; x += type_bytes(type))
                            reduce_memory(data + x, type, operation, copied.data() + x);
                });
        }
    }
    return Step::next;
}

Step commit_group(Warp& w, const Instruction&, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        BulkGroups& groups = bulk_groups(w, std::countr_zero(left));
        groups.committed.push_back(groups.open ? std::move(groups.open) : std::make_shared<BulkGroups::Group>());
        groups.open = nullptr;
    }
    return Step::next;
}

Step wait_group(Warp& w, const Instruction& in, uint32_t lanes) {
    const size_t keep = size_t(in.displacement);
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        BulkGroups& groups = bulk_groups(w, lane);
        Wait wait;
        wait.kind = Wait::Kind::bulk;
        wait.lane = lane;
        wait.value = keep;
        wait.address = in.flags & kReadOnly;
        if (!bulk_done(w, wait)) {
            w.wait = wait;
            return Step::blocked;
        }
        for (size_t i = 0; i + keep < groups.committed.size(); ++i) {
            for (const uint32_t sequence : groups.committed[i]->sequences) w.bulk_open.erase(sequence);
            groups.committed[i]->sequences.clear();
        }
        while (groups.committed.size() > keep && groups.committed.front()->writes_left == 0)
            groups.committed.pop_front();
    }
    learn(w, lanes, w.bulk_agent, w.bulk_open.empty() ? w.bulk_sequence : *w.bulk_open.begin() - 1);
    return Step::next;
}

// An H200 ends a kernel that does this in a launch without clusters, and runs it in clusters of one block.
void want_clusters(const Warp& w) {
    const LaunchState& launch = *w.cluster->launch;
    if (launch.cluster_size == 1 && !launch.entry->cluster[0])
        report(*w.cluster, "no cluster",
               "st.async needs a launch in clusters (one block is enough, by __cluster_dims__), this launch has none",
               &w);
}

Step store_async(Warp& w, const Instruction& in, uint32_t lanes) {
    want_clusters(w);
    const unsigned element = in.flags;
    const auto& values = in.extra->b;
    const uint32_t bytes = element * uint32_t(values.size());
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        const Place place =
            shared_place(w, uint32_t(read_any(w, in.a, lane) + uint64_t(in.displacement)), bytes, false, "st.async");
        Place barrier;
        if (!place.cta || !barrier_operand(w, in.x, in.extra->values[0], lane, barrier)) continue;
        std::vector<char> data(bytes);
        for (size_t e = 0; e < values.size(); ++e) {
            const uint64_t value = read_any(w, values[e], lane);
            std::memcpy(data.data() + e * element, &value, element);
        }
        defer_arrival(w, in, lane, *place.cta, place.offset, bytes, bytes, *place.cta, barrier.offset, "st.async",
                      [data](Cta& target, uint32_t destination) {
                          std::memcpy(target.shared.data() + destination, data.data(), data.size());
                      });
    }
    return Step::next;
}

bool bulk_done(const Warp& warp, const Wait& wait) {
    const auto& groups = warp.bulk[wait.lane];
    if (!groups) return true;
    for (size_t i = 0; i + wait.value < groups->committed.size(); ++i) {
        const auto& group = *groups->committed[i];
        if (group.reads_left || (!(wait.address & 1) && group.writes_left)) return false;
    }
    return true;
}

}  // namespace deep_gemm::simulator
