// Registers whose value an asynchronous instruction has yet to bring.
#include <algorithm>

#include "../../../util/require.hpp"
#include "../matrix/tensor_memory.hpp"
#include "execute.hpp"

namespace deep_gemm::simulator {

namespace {

/// What is pending of one kind of instruction.
struct Pending {
    std::vector<uint64_t>& registers;  // by register: the instruction that brings its value
    std::vector<PendingCopy>& copies;
    uint64_t waited;
    bool contains(const Operand& operand) const {
        return operand.id < registers.size() && registers[operand.id] > waited;
    }
    bool is_copy(const Operand& operand) const {
        return std::ranges::any_of(copies, [&](const PendingCopy& copy) { return copy.to.id == operand.id; });
    }
};

bool is_plain_move(const Instruction& in) { return in.is_move && !in.extra && in.a.bytes == 4 && in.d.bytes == 4; }

/// `to` becomes what `from`, or what `from` itself is a copy of, will be.
void note_copy(Pending& pending, const Operand& from, const Operand& to, uint32_t lanes) {
    Operand root = from;
    for (const PendingCopy& copy : pending.copies)
        if (copy.to.id == from.id && copy.sequence == pending.registers[from.id]) root = copy.from;
    pending.copies.push_back({root, to, lanes, pending.registers[from.id]});
    pending.registers[to.id] = pending.registers[from.id];
}

template <class Report>
void check(Warp& warp, const Instruction& in, const Effects& effects, Pending pending, Report&& report_use) {
    std::erase_if(pending.copies, [&](const PendingCopy& copy) { return copy.sequence <= pending.waited; });
    const bool copies = is_plain_move(in) && pending.contains(in.a);
    for (const auto& operand : effects.writes) {
        if (!pending.contains(operand)) continue;
        if (!pending.is_copy(operand)) report_use("written");
        for (PendingCopy& copy : pending.copies)  // lanes that have drifted apart may be elsewhere
            if (copy.to.id == operand.id) copy.lanes &= ~warp.lanes;
        std::erase_if(pending.copies, [](const PendingCopy& copy) { return copy.lanes == 0; });
        pending.registers[operand.id] = 0;
    }
    if (copies) note_copy(pending, in.a, in.d, warp.lanes);
    if (copies && warp.cluster->by_hardware()) return;
    for (const auto& operand : effects.reads) {
        if (!pending.contains(operand)) continue;
        report_use("read");
        if (!copies) pending.registers[operand.id] = 0;  // once; of a move other lanes may come later
    }
}

}  // namespace

void check_multiplying(Warp& warp, const Instruction& in, const Effects& effects) {
    check(warp, in, effects, {warp.pending_register, warp.multiplying_copies, warp.wgmma_waited},
          [&](const char* what) {
              report(*warp.cluster, "wgmma wait",
                     concat("a register of a wgmma that is still in flight is ", what,
                            ": wgmma.wait_group must come first"),
                     &warp);
          });
}

void check_loading(Warp& warp, const Instruction& in, const Effects& effects) {
    check(warp, in, effects, {warp.loading_register, warp.loading_copies, tensor_loads_waited(warp)},
          [&](const char* what) {
              report(*warp.cluster, "tensor wait",
                     concat("a register that tcgen05.ld writes is ", what, ": tcgen05.wait::ld must come first"),
                     &warp);
          });
}

bool uses_loading(const Warp& warp, const Effects& effects) {
    const auto& loading = warp.loading_register;
    const uint32_t done = tensor_loads_done(warp);
    const auto pending = [&](const Operand& operand) {
        return operand.id < loading.size() && loading[operand.id] > done;
    };
    return std::ranges::any_of(effects.reads, pending) || std::ranges::any_of(effects.writes, pending);
}

void fill_copies(Warp& warp, const std::vector<PendingCopy>& copies, const Operand& from, uint64_t sequence) {
    for (const PendingCopy& copy : copies) {
        if (copy.from.id != from.id || copy.sequence != sequence) continue;
        for (uint32_t left = copy.lanes; left; left &= left - 1) {
            const unsigned lane = std::countr_zero(left);
            warp.row<uint32_t>(copy.to)[lane] = warp.row<uint32_t>(from)[lane];
        }
        set_tainted(warp, copy.to,
                    (tainted_lanes(warp, copy.to) & ~copy.lanes) | (tainted_lanes(warp, from) & copy.lanes));
    }
}

}  // namespace deep_gemm::simulator
