// Statements of a kernel: names in scope, operands, labels. What an instruction means is decided in the decode files.
#include <algorithm>
#include <charconv>

#include "../../../util/require.hpp"
#include "parser_state.hpp"

namespace deep_gemm::simulator {

bool Parser::find_register(std::string_view name, RegisterRange& found, uint32_t& index) const {
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    const std::string_view prefix = name.substr(0, digits);
    uint64_t number = 0;
    if (digits < name.size()) std::from_chars(name.data() + digits, name.data() + name.size(), number);
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
        if (const auto exact = scope->names.find(name); exact != scope->names.end()) {
            found = exact->second;
            index = 0;
            return true;
        }
        if (digits == name.size()) continue;
        if (const auto range = scope->prefixes.find(prefix);
            range != scope->prefixes.end() && number < range->second.count) {
            found = range->second;
            index = uint32_t(number);
            return true;
        }
    }
    return false;
}

bool Parser::find_symbol(std::string_view name, ModuleSymbol& found) const {
    const auto symbol = symbols_.find(name);
    if (symbol == symbols_.end()) return false;
    found = symbol->second;
    return true;
}

const Operand* Parser::find_call_param(std::string_view name) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
        if (const auto found = scope->call_params.find(name); found != scope->call_params.end()) return &found->second;
    return nullptr;
}

Operand Parser::constant_row(uint64_t bits, uint64_t high_bits, unsigned bytes) {
    if (bytes == 4) bits &= 0xffffffffu;
    auto [entry_at, is_new] = constants_.try_emplace({bits, high_bits, bytes});
    if (is_new) {
        auto& rows = module->constants;
        Operand operand;
        operand.bank = Bank::constants;
        operand.present = true;
        operand.bytes = uint8_t(bytes);
        operand.offset = align_up(uint32_t(rows.size()), bytes ? 64 : 4);
        rows.resize(operand.offset + (bytes ? bytes * kLanes : 4));
        char* row = rows.data() + operand.offset;
        if (bytes == 0) {
            const uint32_t mask = bits ? kAllLanes : 0;
            __builtin_memcpy(row, &mask, 4);
        } else if (bytes == 16) {
            for (unsigned lane = 0; lane < kLanes; ++lane) {
                __builtin_memcpy(row + lane * 16, &bits, 8);
                __builtin_memcpy(row + lane * 16 + 8, &high_bits, 8);
            }
        } else {
            for (unsigned lane = 0; lane < kLanes; ++lane) __builtin_memcpy(row + lane * bytes, &bits, bytes);
        }
        entry_at->second = operand;
    }
    return entry_at->second;
}

Operand Parser::warp_value(WarpValue value) {
    auto [entry_at, is_new] = warp_values_.try_emplace({int(value.kind), value.index, value.addend, value.bytes});
    if (is_new) {
        Operand operand;
        operand.bank = Bank::warp_values;
        operand.present = true;
        operand.bytes = value.bytes;
        operand.offset = align_up(entry->warp_value_bytes, 64);
        entry->warp_value_bytes = operand.offset + value.bytes * kLanes;
        entry->warp_values.push_back(value);
        entry_at->second = operand;
    }
    return entry_at->second;
}

Operand Parser::scratch(unsigned bytes) {
    auto [entry_at, is_new] = scratch_.try_emplace(bytes);
    if (is_new) {
        Operand operand;
        operand.bank = Bank::registers;
        operand.present = true;
        operand.bytes = uint8_t(bytes);
        operand.offset = align_up(entry->register_bytes, 64);
        entry->register_bytes = operand.offset + (bytes ? bytes * kLanes : 4);
        entry_at->second = operand;
    }
    return entry_at->second;
}

Node Parser::operand() {
    Node node;
    if (accept("{")) {
        node.kind = Node::Kind::vector;
        while (!accept("}")) {
            node.children.push_back(operand());
            accept(",");
        }
        return node;
    }
    if (accept("[")) {
        node.kind = Node::Kind::address;
        while (!accept("]")) {
            node.children.push_back(operand());
            accept(",");
        }
        return node;
    }
    if (accept("(")) {  // call operands
        node.kind = Node::Kind::vector;
        while (!accept(")")) {
            node.children.push_back(operand());
            accept(",");
        }
        return node;
    }
    bool negative = false;
    if (accept("!")) node.negated = true;
    if (accept("-")) negative = true;
    if (peek().kind == Token::Kind::number) {
        const bool negated = node.negated;
        node = number();
        node.negated = negated;
        if (negative) {
            if (node.kind == Node::Kind::integer)
                node.bits = 0 - node.bits;
            else if (node.kind == Node::Kind::real32)
                node.bits ^= 0x80000000u;
            else
                node.bits ^= uint64_t(1) << 63;
        }
        return node;
    }
    if (peek().kind != Token::Kind::word) error(peek().line, concat("unexpected '", peek().text, "'"));
    if (negative) error(peek().line, "a negated name is not supported");
    node.name = take().text;
    while (peek().text == "+" || peek().text == "-") {
        const bool minus = take().text == "-";
        const bool also_minus = accept("-");
        const int64_t value = int64_t(number().bits);
        node.displacement += minus != also_minus ? -value : value;
    }
    if (accept("|")) {
        Node pair;
        pair.kind = Node::Kind::pair;
        pair.children.push_back(std::move(node));
        pair.children.push_back(operand());
        return pair;
    }
    return node;
}

uint16_t Parser::opcode_id(const Statement& statement) {
    std::string name(statement.mnemonic);
    for (const auto modifier : statement.modifiers) name.append(".").append(modifier);
    const auto [found, is_new] = opcode_ids_.try_emplace(name, uint16_t(module->opcodes.size()));
    if (is_new) module->opcodes.push_back(name);
    return found->second;
}

void Parser::statement() {
    Statement parsed;
    Instruction instruction;
    Effects effects;
    parsed.line = peek().line;
    if (accept("@")) {
        const bool negated = accept("!");
        const std::string_view name = take().text;
        RegisterRange range;
        uint32_t index;
        if (!find_register(name, range, index) || range.bytes != 0)
            error(parsed.line, concat("guard '", name, "' is not a predicate register"));
        instruction.guard = {range.offset + index * range.stride, range.id + index, Bank::registers, 0, negated, true};
        effects.reads.push_back(instruction.guard);
    }
    const Token word = take();
    if (word.kind != Token::Kind::word) error(word.line, concat("expected an instruction but found '", word.text, "'"));
    parsed.mnemonic = word.text;
    parsed.line = word.line;
    while (peek().kind == Token::Kind::modifier) parsed.modifiers.push_back(take().text);
    while (!accept(";")) {
        if (peek().kind == Token::Kind::end) error(word.line, "the statement does not end");
        parsed.operands.push_back(operand());
        accept(",");
    }
    instruction.line = parsed.line;
    instruction.source_file = source_file_;
    instruction.source_line = source_line_;
    instruction.outer_file = outer_file_;
    instruction.outer_line = outer_line_;
    instruction.opcode = opcode_id(parsed);
    if (const char* why = why_refused(parsed)) error(parsed.line, why);
    if (const std::string why = why_not_on(target_, parsed); !why.empty()) error(parsed.line, why);
    const auto decode = table_.find(parsed.mnemonic);
    if (decode == table_.end()) error(parsed.line, concat("unknown instruction '", parsed.mnemonic, "'"));
    Decoder decoder(*this, parsed, instruction, effects);
    decode->second(decoder);
    decoder.finish();
    entry->code.push_back(instruction);
    entry->effects.push_back(std::move(effects));
}

void Parser::close_scope() {
    Scope inner = std::move(scopes.back());
    scopes.pop_back();
    for (const Fixup& fixup : inner.fixups) {
        const auto label = inner.labels.find(fixup.label);
        if (label == inner.labels.end()) {
            if (scopes.empty()) error(fixup.line, concat("no label '", fixup.label, "'"));
            scopes.back().fixups.push_back(fixup);
        } else if (fixup.extra) {
            fixup.extra->targets[fixup.slot] = label->second;
        } else {
            entry->code[fixup.instruction].target = label->second;
        }
    }
}

void Parser::finish_entry() {
    Statement statement;  // a kernel may end without ret
    statement.mnemonic = "ret";
    statement.line = peek().line;
    Instruction instruction;
    Effects effects;
    instruction.line = statement.line;
    instruction.opcode = opcode_id(statement);
    Decoder decoder(*this, statement, instruction, effects);
    table_.at("ret")(decoder);
    entry->code.push_back(instruction);
    entry->effects.push_back(effects);
    close_scope();
    entry->register_bytes = align_up(entry->register_bytes, 64);
    entry->warp_value_bytes = align_up(entry->warp_value_bytes, 64);
    for (const auto& code : entry->code) {
        entry->has_wgmma |= code.is_wgmma;
        entry->has_tensor_load |= code.is_tensor_load;
    }
}

}  // namespace deep_gemm::simulator
