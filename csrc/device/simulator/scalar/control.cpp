// Branches, exit, traps, and instructions that only hint.
#include "../../../util/require.hpp"
#include "../core/execute.hpp"

namespace deep_gemm::simulator {

Step print(Warp& w, const Instruction& in, uint32_t lanes);  // print.cpp

namespace {

Step bra(Warp& w, const Instruction& in, uint32_t lanes) { return branch(w, lanes, in.target); }

void decode_bra(Decoder& decoder) {
    decoder.mod("uni");
    decoder.out.target = decoder.label(0);
    decoder.out.is_branch = true;
    decoder.set(bra);
}

Step brx(Warp& w, const Instruction& in, uint32_t lanes) {
    const auto& targets = in.extra->targets;
    const auto* index = w.row<uint32_t>(in.a);
    // Lanes of one target go together; the rest come here again.
    const unsigned first = std::countr_zero(lanes);
    const uint32_t chosen = index[first];
    if (chosen >= targets.size())
        stop(*w.cluster, "control", concat("brx.idx index ", chosen, " is beyond its ", targets.size(), " targets"),
             &w);
    uint32_t same = 0;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned i = std::countr_zero(left);
        if (index[i] == chosen) same |= 1u << i;
    }
    if (same == w.lanes) {
        w.pc = targets[chosen];
        return Step::jumped;
    }
    if (same == lanes) return branch(w, same, targets[chosen]);
    // Split off one target; the others stay at this instruction.
    const uint32_t here = w.pc;
    w.pc = here - 1;  // branch() sends the other lanes to the next instruction, which must be this one
    return branch(w, same, targets[chosen]);
}

void decode_brx(Decoder& decoder) {
    if (!decoder.mod("idx")) decoder.error("only brx.idx is supported");
    decoder.mod("uni");
    decoder.out.a = decoder.source(0, Type::u32);
    decoder.branch_targets(1);
    decoder.set(brx);
}

Step leave(Warp& w, const Instruction&, uint32_t lanes) {
    exit_lanes(w, lanes);
    return Step::exited;
}
void decode_exit(Decoder& decoder) {
    decoder.mod("uni");
    decoder.set(leave);
}

Step trap(Warp& w, const Instruction&, uint32_t) { stop(*w.cluster, "trap", "the kernel trapped", &w); }
void decode_trap(Decoder& decoder) { decoder.set(trap); }

Step device_assert(Warp& w, const Instruction&, uint32_t) { stop(*w.cluster, "trap", "a device assertion failed", &w); }
Step no_calls(Warp& w, const Instruction&, uint32_t) {
    stop(*w.cluster, "unsupported", "function calls are not supported: inline the function", &w);
}

// Calls appear only as assertions and printing: functions are inlined.
void decode_call(Decoder& decoder) {
    decoder.mod("uni");
    Handler handler = no_calls;
    for (size_t i = 0; i < decoder.count(); ++i) {
        const Node& node = decoder.node(i);
        if (node.kind == Node::Kind::name && node.name == "__assertfail") handler = device_assert;
        if (node.kind == Node::Kind::name && node.name == "vprintf") handler = print;
    }
    if (handler == print) {
        // (result), vprintf, (format, arguments)
        const auto param = [&](size_t operand, size_t index) {
            const Node& list = decoder.node(operand);
            const Operand* const found =
                index < list.children.size() ? decoder.call_param(list.children[index]) : nullptr;
            if (!found) decoder.error("vprintf must be called as (result), vprintf, (format, arguments)");
            return *found;
        };
        decoder.out.d = param(0, 0), decoder.out.a = param(2, 0), decoder.out.b = param(2, 1);
    }
    decoder.set(handler);
}

Step sleep(Warp& w, const Instruction& in, uint32_t lanes) {
    if (w.resuming) return Step::next;
    w.wait = {};
    w.wait.kind = Wait::Kind::sleep;
    w.wait.value = w.cluster->time + w.row<uint32_t>(in.a)[std::countr_zero(lanes)];
    return Step::blocked;
}
void decode_nanosleep(Decoder& decoder) {
    decoder.need_type();
    decoder.out.a = decoder.source(0, Type::u32);
    decoder.set(sleep);
}

void decode_griddepcontrol(Decoder& decoder) {
    // Launches of the simulator run one after the other, so a dependency is always met.
    if (decoder.one_of({"wait", "launch_dependents"}).empty())
        decoder.error("griddepcontrol needs wait or launch_dependents");
    decoder.set(nothing);
}

void decode_hint(Decoder& decoder) {
    decoder.consume_rest();
    for (size_t i = 0; i < decoder.count(); ++i) decoder.node(i);
    decoder.set(nothing);
}

// setmaxnreg moves registers between a warp and the pool of its block.
Step setmaxnreg(Warp& w, const Instruction& in, uint32_t) {
    const auto wanted = uint32_t(in.displacement);
    const bool grow = in.flags;
    if (!w.resuming) {
        const auto problem = [&](const std::string& text) { report(*w.cluster, "registers", text, &w); };
        if (!w.entry->max_registers && !w.entry->min_blocks && !w.entry->max_threads)
            problem("setmaxnreg is ignored by ptxas: the kernel has no register limit (launch bounds)");
        // What a warp starts with is ptxas's choice; only what setmaxnreg itself has set is known.
        if (grow && w.registers_known && wanted < w.registers_per_thread)
            problem(concat("setmaxnreg.inc to ", wanted, " but the warp has ", w.registers_per_thread,
                           " registers a thread"));
        if (!grow && w.registers_known && wanted > w.registers_per_thread)
            problem(concat("setmaxnreg.dec to ", wanted, " but the warp has ", w.registers_per_thread,
                           " registers a thread"));
    }
    w.registers_known = true;
    if (wanted <= w.registers_per_thread) {
        w.cta->free_registers += (w.registers_per_thread - wanted) * kLanes;
        w.registers_per_thread = wanted;
        ++w.cluster->progress;
        return Step::next;
    }
    const uint32_t needed = (wanted - w.registers_per_thread) * kLanes;
    if (needed > w.cta->free_registers) {
        w.wait = {};
        w.wait.kind = Wait::Kind::registers;
        w.wait.value = needed;
        return Step::blocked;
    }
    w.cta->free_registers -= needed;
    w.registers_per_thread = wanted;
    return Step::next;
}
void decode_setmaxnreg(Decoder& decoder) {
    const auto direction = decoder.one_of({"inc", "dec"});
    if (direction.empty() || !decoder.mod("sync") || !decoder.mod("aligned"))
        decoder.error("setmaxnreg.{inc,dec}.sync.aligned expected");
    decoder.need_type();
    const int64_t count = decoder.constant(0);
    if (count < 24 || count > 256 || count % 8) decoder.error("setmaxnreg takes a multiple of 8 from 24 to 256");
    decoder.out.displacement = count;
    decoder.out.flags = direction == "inc";
    decoder.out.gather = Gather::warp;
    decoder.set(setmaxnreg);
}

}  // namespace

void add_control(DecodeTable& table) {
    table["bra"] = decode_bra;
    table["brx"] = decode_brx;
    table["ret"] = table["exit"] = decode_exit;
    table["trap"] = table["brkpt"] = decode_trap;
    table["call"] = decode_call;
    table["nanosleep"] = decode_nanosleep;
    table["griddepcontrol"] = decode_griddepcontrol;
    table["setmaxnreg"] = decode_setmaxnreg;
    table["pmevent"] = table["prefetchu"] = table["createpolicy_hint"] = table["discard"] = table["applypriority"] =
        decode_hint;
}

}  // namespace deep_gemm::simulator
