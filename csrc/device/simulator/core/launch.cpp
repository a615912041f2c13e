// A launch: clusters built and run one after the other on every host thread.
#include <chrono>
#include <condition_variable>
#include <optional>
#include <thread>

#include "../../../util/interrupt.hpp"
#include "../../../util/require.hpp"
#include "execute.hpp"
#include "launch.hpp"

namespace deep_gemm::simulator {

void finish_cluster(Cluster& cluster) {
    for (const auto& cta : cluster.ctas) {
        // A phase that was armed, but that no copy came to and nobody waited for, does no harm.
        for (const auto& barrier : cta->mbarriers)
            if (cta->find_mbarrier(barrier->address) == barrier.get() && barrier->bytes != 0 &&
                barrier->last_write > barrier->phase)
                report(cluster, "transaction count",
                       concat("at the end of block ", cta->rank, " mbarrier ", hex(barrier->address), " has ",
                              barrier->bytes, " bytes to come: expected and copied bytes differ"),
                       nullptr, barrier->last_copy);
        for (Agent agent = 0; agent < cta->remote_access.size(); ++agent)
            if (cta->remote_access[agent] > cta->exit_clock.of(agent)) {
                const uint32_t index = cta->remote_instruction[agent];
                report(cluster, "early exit",
                       concat("block ", cta->rank, " may exit before ", describe_agent(cluster, agent),
                              " has accessed its shared memory: nothing orders the exit after the access"),
                       nullptr, index ? &cluster.launch->entry->code[index - 1] : nullptr);
            }
    }
}

void Statistics::add(const Statistics& other) {
    for (const auto& [name, count] : other.instructions) instructions[name] += count;
    warp_instructions += other.warp_instructions;
    tma_load_bytes += other.tma_load_bytes, tma_store_bytes += other.tma_store_bytes, tma_copies += other.tma_copies;
    boxes_asked_for += other.boxes_asked_for, boxes_asked_in_vain += other.boxes_asked_in_vain;
    global_load_bytes += other.global_load_bytes, global_store_bytes += other.global_store_bytes;
    shared_accesses += other.shared_accesses, bank_conflicts += other.bank_conflicts;
    barrier_waits += other.barrier_waits, barrier_waits_blocked += other.barrier_waits_blocked;
    matrix_multiplies += other.matrix_multiplies, multiply_adds += other.multiply_adds;
    blocks += other.blocks, seconds += other.seconds;
}

void add_counts(LaunchState& launch, Cluster& cluster, std::vector<uint64_t>& counts) {
    Statistics found = cluster.statistics;
    found.blocks = cluster.ctas.size();
    found.boxes_asked_in_vain = cluster.asked_for.size();
    launch.statistics.add(found);
    launch.timelines[cluster.index] = std::move(cluster.timeline);
    launch.timeline_left_out += cluster.timeline_left_out;
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += cluster.counts[i];
}

Report report_of(LaunchState& launch, const std::vector<uint64_t>& counts) {
    Report report{std::move(launch.hazards), std::move(launch.statistics), {}, launch.timeline_left_out};
    for (const auto& [cluster, events] : launch.timelines)
        report.timeline.insert(report.timeline.end(), events.begin(), events.end());
    for (size_t i = 0; i < counts.size(); ++i) {
        if (!counts[i]) continue;
        report.statistics.instructions[launch.module->opcodes[launch.entry->code[i].opcode]] += counts[i];
        report.statistics.warp_instructions += counts[i];
    }
    return report;
}

Report collect(const Module& module, const Launch& given, const Options& options) {
    const auto begin = std::chrono::steady_clock::now();
    LaunchState launch;
    prepare(launch, module, given, options);

    const uint32_t clusters = launch.clusters;
    std::vector<uint64_t> counts(launch.entry->code.size());
    std::exception_ptr failure;
    std::optional<Interrupted> interrupted;
    const auto interrupt = [&](const Interrupted& by) {
        const std::lock_guard lock(launch.mutex);
        interrupted = by;
        launch.stop = true;
    };
    const auto work = [&] {
        for (uint32_t index; !launch.stop && (index = launch.next_cluster++) < clusters;) {
            std::unique_ptr<Cluster> cluster;
            try {
                cluster = build_cluster(launch, index);
                cluster->run();
                finish_cluster(*cluster);
            } catch (const HazardStop&) {
            } catch (const Interrupted& by) {
                interrupt(by);
            } catch (...) {
                const std::lock_guard lock(launch.mutex);
                failure = std::current_exception();
                launch.stop = true;
            }
            const std::lock_guard lock(launch.mutex);
            if (cluster) add_counts(launch, *cluster, counts);
        }
    };
    const uint32_t wanted =
        options.threads > 0 ? uint32_t(options.threads) : std::max(1u, std::thread::hardware_concurrency());
    std::condition_variable helper_ended;
    uint32_t helping = 0;
    std::vector<std::jthread> helpers;  // joined whatever happens
    for (uint32_t i = 1; i < std::min(wanted, clusters); ++i) {
        {
            const std::lock_guard lock(launch.mutex);
            ++helping;
        }
        helpers.emplace_back([&] {
            work();
            const std::lock_guard lock(launch.mutex);
            --helping;
            helper_ended.notify_one();
        });
    }
    work();
    // Helpers are not interrupted by themselves: who waits for them is.
    for (std::unique_lock lock(launch.mutex); helping > 0;) {
        if (helper_ended.wait_for(lock, kInterruptPause, [&] { return helping == 0; })) break;
        lock.unlock();
        try {
            check_interrupt();
        } catch (const Interrupted& by) {
            interrupt(by);
        }
        lock.lock();
    }
    helpers.clear();
    if (interrupted) throw *interrupted;
    if (failure) std::rethrow_exception(failure);

    Report report = report_of(launch, counts);
    report.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return report;
}

void raise_first(const Report& report, const char* kernel) {
    if (!report.hazards.empty())
        fail(ErrorKind::runtime, "simulator: kernel '", kernel, "': ", report.hazards.front().message);
}

Report run(const Module& module, const Launch& launch, const Options& options) {
    Report report = collect(module, launch, options);
    if (options.hazards == HazardMode::error) raise_first(report, module.find(launch.entry).name.c_str());
    return report;
}

}  // namespace deep_gemm::simulator
