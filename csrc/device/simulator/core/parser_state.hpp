// State of one parse: names in scope, rows of constants, the module under construction.
#pragma once

#include <map>

#include "../simulator.hpp"
#include "parser.hpp"
#include "targets.hpp"

namespace deep_gemm::simulator {

struct RegisterRange {
    uint32_t offset, id, count, stride;
    uint8_t bytes;
};

struct Fixup {
    uint32_t instruction;
    Extra* extra;  // when set, extra->targets[slot] is patched instead
    uint32_t slot;
    std::string_view label;
    uint32_t line;
};

struct Scope {
    std::unordered_map<std::string_view, RegisterRange> names, prefixes;
    std::unordered_map<std::string_view, uint32_t> labels;
    std::unordered_map<std::string_view, std::vector<std::string_view>> branch_tables;
    std::unordered_map<std::string_view, Operand> call_params;
    std::vector<Fixup> fixups;
};

struct ModuleSymbol {
    enum class Space : uint8_t { shared, global, param, local } space;
    uint64_t value;  // index of the shared symbol, host address, or offset
};

class Parser {
public:
    explicit Parser(std::string_view text);
    std::shared_ptr<const Module> parse();

    [[noreturn]] void error(uint32_t line, const std::string& what) const;

    std::shared_ptr<Module> module;
    Entry* entry = nullptr;
    std::vector<Scope> scopes;

    bool find_register(std::string_view name, RegisterRange& found, uint32_t& index) const;
    bool find_symbol(std::string_view name, ModuleSymbol& found) const;
    const Operand* find_call_param(std::string_view name) const;
    Operand constant_row(uint64_t bits, uint64_t high_bits, unsigned bytes);
    Operand warp_value(WarpValue value);
    Operand scratch(unsigned bytes);  // where a `_` destination goes
    std::string_view source_text() const { return text_; }

private:
    friend class Decoder;

    std::string_view text_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    DecodeTable table_;
    Target target_;
    std::unordered_map<std::string_view, ModuleSymbol> symbols_;
    std::map<std::tuple<uint64_t, uint64_t, unsigned>, Operand> constants_;
    std::map<std::tuple<int, uint32_t, int64_t, unsigned>, Operand> warp_values_;
    std::map<unsigned, Operand> scratch_;
    std::unordered_map<std::string, uint16_t> opcode_ids_;
    uint32_t source_file_ = 0, source_line_ = 0, outer_file_ = 0, outer_line_ = 0;

    const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
    const Token& take() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
    bool accept(std::string_view text);
    void expect(std::string_view text);
    uint64_t integer();

    void index_lines();
    void module_level();
    void skip_braces();
    void variable(ModuleSymbol::Space space, bool is_extern, bool is_local_scope);
    void target(const Token& name);
    void entry_point();
    void body();
    void registers();
    Operand new_row(uint8_t bytes);  // a register without a name
    void location();
    void statement();
    Node operand();
    Node number();
    void close_scope();
    void finish_entry();
    uint16_t opcode_id(const Statement& statement);
};

Special parse_special(std::string_view name);

inline uint32_t align_up(uint32_t value, uint32_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace deep_gemm::simulator
