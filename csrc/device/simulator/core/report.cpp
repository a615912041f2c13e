// Reports as JSON text.
#include <cstdio>
#include <sstream>

#include "../simulator.hpp"

namespace deep_gemm::simulator {

namespace {

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out += '\\', out += c;
        else if (c == '\n')
            out += "\\n";
        else if (c == '\t')
            out += "\\t";
        else if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof(code), "\\u%04x", c);
            out += code;
        } else
            out += c;
    }
    return out + "\"";
}

const char* name(BarrierEvent::What what) {
    constexpr const char* kNames[] = {"init", "arrive", "expect", "bytes", "complete", "blocked", "pass"};
    return kNames[size_t(what)];
}

std::string barrier_name(const BarrierEvent& event) {
    char text[32];
    if (event.kind == BarrierKind::cluster) return "cluster";
    std::snprintf(text, sizeof(text), event.kind == BarrierKind::mbarrier ? "mbarrier 0x%x" : "barrier %u",
                  event.place);
    return text;
}

void write_timeline(const Report& report, std::ostringstream& out) {
    out << "\"timeline\": [";
    for (size_t i = 0; i < report.timeline.size(); ++i) {
        const BarrierEvent& event = report.timeline[i];
        out << (i ? ", " : "") << "{\"time\": " << event.time << ", \"cluster\": " << event.cluster
            << ", \"block\": " << event.block << ", \"barrier\": " << quoted(barrier_name(event))
            << ", \"event\": " << quoted(name(event.what)) << ", \"amount\": " << event.amount
            << ", \"warp\": " << event.warp << ", \"line\": " << event.line << "}";
    }
    out << "], \"timeline_left_out\": " << report.timeline_left_out;
}

}  // namespace

std::string to_json(const Report& report) {
    std::ostringstream out;
    out << "{\"hazards\": [";
    for (size_t i = 0; i < report.hazards.size(); ++i)
        out << (i ? ", " : "") << "{\"kind\": " << quoted(report.hazards[i].kind)
            << ", \"message\": " << quoted(report.hazards[i].message) << "}";
    const Statistics& s = report.statistics;
    out << "], \"statistics\": {\"instructions\": {";
    bool first = true;
    for (const auto& [name, count] : s.instructions) {
        out << (first ? "" : ", ") << quoted(name) << ": " << count;
        first = false;
    }
    out << "}, \"warp_instructions\": " << s.warp_instructions << ", \"tma_load_bytes\": " << s.tma_load_bytes
        << ", \"tma_store_bytes\": " << s.tma_store_bytes << ", \"tma_copies\": " << s.tma_copies
        << ", \"boxes_asked_for\": " << s.boxes_asked_for << ", \"boxes_asked_in_vain\": " << s.boxes_asked_in_vain
        << ", \"global_load_bytes\": " << s.global_load_bytes << ", \"global_store_bytes\": " << s.global_store_bytes
        << ", \"shared_accesses\": " << s.shared_accesses << ", \"bank_conflicts\": " << s.bank_conflicts
        << ", \"barrier_waits\": " << s.barrier_waits << ", \"barrier_waits_blocked\": " << s.barrier_waits_blocked
        << ", \"matrix_multiplies\": " << s.matrix_multiplies << ", \"multiply_adds\": " << s.multiply_adds
        << ", \"blocks\": " << s.blocks << ", \"seconds\": " << s.seconds << "}, ";
    write_timeline(report, out);
    out << "}";
    return out.str();
}

}  // namespace deep_gemm::simulator
