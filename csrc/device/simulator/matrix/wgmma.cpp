// wgmma: asynchronous matrix multiply of a warpgroup, from shared memory through descriptors.
#include <cstring>

#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "../memory/memory.hpp"
#include "matrix_unit.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kWarpsOfGroup = 4, kRows = 64;

// Extra::values of a wgmma instruction.
enum Value { kN, kK, kTypeA, kTypeB, kTypeD, kScaleA, kScaleB, kMajorA, kMajorB, kARegisters, kSaturate };

Warpgroup& group_of(Warp& w) { return w.cta->warpgroups[w.index / kWarpsOfGroup]; }

Step fence(Warp& w, const Instruction&, uint32_t) {
    w.wgmma_fence_time = w.executed;
    w.wgmma_seen = true;
    return Step::next;
}

// A fragment of m64k(32 bytes): register r, lane l -> row, and the first of the elements packed in the register.
void read_a_registers(Cta& cta, size_t group, const Instruction& in, Matrix& a, Type type) {
    const unsigned bytes = type_bytes(type == Type::tf32 ? Type::b32 : type), per_register = 4 / bytes;
    for (unsigned warp = 0; warp < kWarpsOfGroup; ++warp) {
        Warp& w = *cta.warps[group * kWarpsOfGroup + warp];
        for (unsigned r = 0; r < 4; ++r) {
            const Operand& operand = in.extra->a[r];
            const uint32_t* row_values = w.row<uint32_t>(operand);
            const uint32_t bad = tainted_lanes(w, operand);
            for (unsigned lane = 0; lane < kLanes; ++lane) {
                const unsigned row = warp * 16 + lane / 4 + 8 * (r & 1),
                               column = per_register * (lane % 4) + 4 * per_register * (r >> 1);
                if (bad >> lane & 1) a.bad[row] = true;
                convert_elements(type, reinterpret_cast<const char*>(row_values + lane), per_register,
                                 a.values + row * kMatrixK + column);
            }
        }
    }
}

void execute(Cluster& cluster, Cta& cta, Warpgroup& group) {
    const WgmmaOperation operation = std::move(group.queue.front());
    group.queue.pop_front();
    const size_t group_index = size_t(&group - cta.warpgroups.data());
    const Instruction& in = *operation.instruction;
    const int* v = in.extra->values;
    const unsigned n = unsigned(v[kN]), k = unsigned(v[kK]);
    const Type type_a = Type(v[kTypeA]), type_b = Type(v[kTypeB]), type_d = Type(v[kTypeD]);
    Warp& first = *cta.warps[group_index * kWarpsOfGroup];
    const AsyncAccess access{&cluster, &operation.clock, group.agent, uint32_t(group.executed + 1),
                             &in,      &first,           "wgmma"};

    static thread_local Matrix a, b;
    static thread_local float product[kRows * 256];
    a.clear(kRows), b.clear(n);
    if (v[kARegisters])
        read_a_registers(cta, group_index, in, a, type_a);
    else
        fetch_operand(access, cta, wgmma_layout(operation.descriptor_a), kRows, v[kMajorA], Elements(type_a), a);
    fetch_operand(access, cta, wgmma_layout(operation.descriptor_b), n, v[kMajorB], Elements(type_b), b);
    multiply(a.values, b.values, kRows, n, k, product);

    const float sign = float(v[kScaleA] * v[kScaleB]);
    for (unsigned warp = 0; warp < kWarpsOfGroup; ++warp) {
        Warp& w = *cta.warps[group_index * kWarpsOfGroup + warp];
        const bool accumulate = operation.accumulate[warp];
        for (unsigned r = 0; r < in.extra->d.size(); ++r) {
            const Operand& operand = in.extra->d[r];
            uint32_t bad = 0;
            const unsigned pair = type_d == Type::f16 ? 2 * r : r;  // index of the first element among the lane's N/2
            for (unsigned lane = 0; lane < kLanes; ++lane) {
                const unsigned row = warp * 16 + lane / 4 + 8 * ((pair >> 1) & 1),
                               column = 8 * (pair / 4) + 2 * (lane % 4) + (pair & 1);
                const float* sum = product + row * n + column;
                if (type_d == Type::f32) {
                    float& d = w.row<float>(operand)[lane];
                    d = accumulate ? d + sign * sum[0] : sign * sum[0];
                } else if (type_d == Type::s32) {
                    int32_t& d = w.row<int32_t>(operand)[lane];
                    d = add_integers(accumulate ? d : 0, int32_t(sum[0]), v[kSaturate]);
                } else {
                    uint32_t& d = w.row<uint32_t>(operand)[lane];
                    const float low = (accumulate ? half_to_float(uint16_t(d)) : 0.0f) + sign * sum[0];
                    const float high = (accumulate ? half_to_float(uint16_t(d >> 16)) : 0.0f) + sign * sum[1];
                    d = uint32_t(float_to_half(high)) << 16 | float_to_half(low);
                }
                if (a.bad[row] || b.bad[column] || (type_d == Type::f16 && b.bad[column + 1])) bad |= 1u << lane;
            }
            if (!accumulate && w.any_tainted && operand.id < w.tainted.size()) w.tainted[operand.id] = 0;
            if (bad) mark_tainted(w, operand, bad);
            fill_copies(w, w.multiplying_copies, operand, group.executed + 1);
        }
    }
    ++group.executed;
    ++cluster.progress;
    ++cluster.statistics.matrix_multiplies;
    cluster.statistics.multiply_adds += uint64_t(kRows) * n * k;
}

void check_fence(Warp& w, const Instruction& in) {
    const auto check = [&](const Operand& operand, const char* what) {
        if (operand.id < w.written_register.size() && w.written_register[operand.id] > w.wgmma_fence_time) {
            report(*w.cluster, "wgmma fence",
                   concat(what, " registers of wgmma were written after the last wgmma.fence"), &w);
            return false;
        }
        return true;
    };
    if (!w.wgmma_seen) {
        report(*w.cluster, "wgmma fence", "the first wgmma of a warp needs a wgmma.fence before it", &w);
        w.wgmma_seen = true;
    }
    for (const auto& operand : in.extra->d)
        if (!check(operand, "accumulator")) break;
    for (const auto& operand : in.extra->a)
        if (!check(operand, "A fragment")) break;
    // Accumulators of a wgmma still in flight may be shared only with the same shape; reading A of one in flight is
    // fine.
}

Step mma_async(Warp& w, const Instruction& in, uint32_t) {
    Cluster& cluster = *w.cluster;
    Cta& cta = *w.cta;
    if (cta.warps.size() < (w.index / kWarpsOfGroup + 1) * kWarpsOfGroup)
        stop(cluster, "wgmma", "wgmma needs a warpgroup of four warps", &w);
    check_fence(w, in);
    Warpgroup& group = group_of(w);
    const uint64_t sequence = w.wgmma_issued++;
    const uint64_t position = sequence - group.executed;
    if (position >= group.queue.size()) {
        auto& operation = group.queue.emplace_back();
        operation.instruction = &in;
        if (in.a.present) operation.descriptor_a = w.row<uint64_t>(in.a)[0];
        operation.descriptor_b = w.row<uint64_t>(in.b)[0];
        operation.clock = released(w, kAllLanes);
    }
    WgmmaOperation& operation = group.queue[position];
    if (operation.arrived) operation.clock.meet(released(w, kAllLanes));
    tick(w);  // what the warp does from here on may overtake the product
    if (operation.instruction != &in)
        stop(cluster, "wgmma",
             concat("the warps of a warpgroup issue different wgmma instructions: this one and ",
                    cluster.module->location(*operation.instruction)),
             &w);
    if ((in.a.present && w.row<uint64_t>(in.a)[0] != operation.descriptor_a) ||
        w.row<uint64_t>(in.b)[0] != operation.descriptor_b)
        report(cluster, "wgmma", "the warps of a warpgroup give different descriptors for one wgmma", &w);
    const uint32_t accumulate = w.predicate(in.c);
    if (accumulate != 0 && accumulate != kAllLanes)
        report(cluster, "wgmma", "scale-d differs between the lanes of a warp", &w);
    operation.accumulate[w.index % kWarpsOfGroup] = accumulate & 1;
    for (const auto& operand : in.extra->d)
        if (operand.id < w.pending_register.size()) w.pending_register[operand.id] = sequence + 1;
    for (const auto& operand : in.extra->a)
        if (operand.id < w.pending_register.size()) w.pending_register[operand.id] = sequence + 1;
    operation.arrived |= 1u << w.index % kWarpsOfGroup;
    if (operation.arrived == 0xf)
        cluster.defer({[&cluster, &cta, &group] { execute(cluster, cta, group); }, &in, &w, "wgmma"});
    return Step::next;
}

Step commit(Warp& w, const Instruction&, uint32_t) {
    w.wgmma_groups.push_back(w.wgmma_issued);
    return Step::next;
}

Step wait(Warp& w, const Instruction& in, uint32_t) {
    const size_t keep = size_t(in.displacement);
    Warpgroup& group = group_of(w);
    if (w.wgmma_groups.size() > keep) {
        const uint64_t target = w.wgmma_groups[w.wgmma_groups.size() - 1 - keep];
        if (group.executed < target) {
            w.wait = {};
            w.wait.kind = Wait::Kind::wgmma;
            w.wait.value = target;
            return Step::blocked;
        }
        while (w.wgmma_groups.size() > keep) w.wgmma_groups.pop_front();
        w.wgmma_waited = std::max(w.wgmma_waited, target);
        learn(w, kAllLanes, group.agent, uint32_t(target));
    }
    return Step::next;
}

// Which types may meet in one product, by D and A.
void check_types(Decoder& decoder, Type d, Type a, Type b) {
    const auto is_byte = [](Type type) { return type == Type::s8 || type == Type::u8; };
    const auto is_fp8 = [](Type type) { return type == Type::e4m3 || type == Type::e5m2; };
    const bool known = is_byte(a)                           ? is_byte(b) && d == Type::s32
                       : is_fp8(a)                          ? is_fp8(b) && (d == Type::f32 || d == Type::f16)
                       : a == Type::f16                     ? b == a && (d == Type::f32 || d == Type::f16)
                       : a == Type::bf16 || a == Type::tf32 ? b == a && d == Type::f32
                                                            : false;
    if (!known) decoder.error("wgmma has no product of these types");
}

void check_width(Decoder& decoder, unsigned n, bool integer) {
    if (n < 8 || n > 256 || n % 8) decoder.error("shape m64nNkK with N from 8 to 256 in steps of 8 expected");
    if (integer && n > 24 && n % 16)
        decoder.error("N of an integer product is 8, 16, 24, 32 or a multiple of 16 above it");
}

void decode_mma(Decoder& decoder) {
    Instruction& out = decoder.out;
    Extra& extra = decoder.extra();
    int* v = extra.values;
    unsigned m = 0, n = 0, k = 0;
    decoder.take_shape(m, n, k);
    if (m != kRows) decoder.error("shape m64nNkK expected");
    const Type type_d = decoder.need_type(), type_a = decoder.need_type(), type_b = decoder.need_type();
    check_types(decoder, type_d, type_a, type_b);
    const bool half_d = type_d == Type::f16, integer = type_d == Type::s32;
    check_width(decoder, n, integer);
    if (integer) v[kSaturate] = decoder.mod("satfinite");
    const unsigned element = type_a == Type::tf32 ? 4 : type_bytes(type_a);
    if (k * element != 32) decoder.error("the K of the shape does not belong to the type");
    v[kN] = int(n), v[kK] = int(k), v[kTypeA] = int(type_a), v[kTypeB] = int(type_b), v[kTypeD] = int(type_d);
    v[kScaleA] = v[kScaleB] = 1;
    extra.d = decoder.dests(decoder.node(0), half_d ? Type::b32 : type_d == Type::f32 ? Type::f32 : Type::s32);
    if (extra.d.size() != (half_d ? n / 4 : n / 2))
        decoder.error(concat("D needs ", half_d ? n / 4 : n / 2, " registers, ", extra.d.size(), " are given"));
    if (decoder.is_vector(1)) {
        extra.a = decoder.sources(decoder.node(1), Type::b32);
        if (extra.a.size() != 4) decoder.error("A in registers needs four");
        v[kARegisters] = 1;
    } else {
        out.a = decoder.source(1, Type::b64);
    }
    out.b = decoder.source(2, Type::b64);
    out.c = decoder.predicate(3);
    const bool can_transpose = type_a == Type::f16 || type_a == Type::bf16;
    size_t next = 4;
    if (!integer) {
        v[kScaleA] = int(decoder.constant(next++));
        v[kScaleB] = int(decoder.constant(next++));
    }
    if (can_transpose) {
        if (!v[kARegisters]) v[kMajorA] = int(decoder.constant(next++));
        v[kMajorB] = int(decoder.constant(next++));
    }
    decoder.set(mma_async);
}

void decode_wgmma(Decoder& decoder) {
    Instruction& out = decoder.out;
    const auto name = decoder.one_of({"fence", "commit_group", "wait_group", "mma_async"});
    if (!decoder.mod("sync") || !decoder.mod("aligned")) decoder.error(".sync.aligned expected");
    out.gather = Gather::warp;
    out.is_wgmma = out.sets_taint = true;
    if (name == "fence")
        decoder.set(fence);
    else if (name == "commit_group")
        decoder.set(commit);
    else if (name == "wait_group") {
        out.displacement = decoder.constant(0);
        decoder.set(wait);
    } else if (name == "mma_async")
        decode_mma(decoder);
    else
        decoder.error("unknown wgmma operation");
}

}  // namespace

void add_wgmma(DecodeTable& table) { table["wgmma"] = decode_wgmma; }

}  // namespace deep_gemm::simulator
