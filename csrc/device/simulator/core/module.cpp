// A decoded module: finding entries, and saying where an instruction stands.
#include "../../../util/require.hpp"
#include "program.hpp"

namespace deep_gemm::simulator {

const Entry& Module::find(const char* name) const {
    for (const auto& entry : entries)
        if (!name || entry.name == name) return entry;
    fail(ErrorKind::value, "the PTX text has no entry '", name ? name : "", "'");
}

std::string Module::line_text(uint32_t line) const {
    if (line == 0 || line > lines.size()) return "";
    std::string text = lines[line - 1];
    text.erase(0, text.find_first_not_of(" \t"));
    if (text.size() > 160) text = text.substr(0, 157) + "...";
    return text;
}

std::string Module::location(const Instruction& instruction) const {
    std::string text = concat("PTX line ", instruction.line, ": ", line_text(instruction.line));
    if (const auto file = files.find(instruction.source_file); instruction.source_line && file != files.end()) {
        text += concat("  [", file->second, ":", instruction.source_line);
        if (const auto outer = files.find(instruction.outer_file); instruction.outer_line && outer != files.end())
            text += concat(", inlined at ", outer == file ? "line " : outer->second + ":", instruction.outer_line);
        text += "]";
    }
    return text;
}

}  // namespace deep_gemm::simulator
