// PTX text -> Module: directives and declarations. Statements are in statements.cpp.
#include <algorithm>

#include "../../../util/require.hpp"
#include "parser_state.hpp"

namespace deep_gemm::simulator {

Parser::Parser(std::string_view text) : module(std::make_shared<Module>()), text_(text), tokens_(tokenize(text)) {
    for (auto add : {add_integer, add_bits, add_float, add_compare, add_convert, add_move, add_control, add_warp,
                     add_memory, add_fence, add_atomic, add_barrier, add_mbarrier, add_bulk, add_tensor_maps,
                     add_matrix, add_mma_sync, add_wgmma, add_tensor_memory})
        add(table_);
}

void Parser::error(uint32_t line, const std::string& what) const {
    fail(ErrorKind::runtime, "simulator: PTX line ", line, ": ", what, "\n    ", module->line_text(line));
}

bool Parser::accept(std::string_view text) {
    if (peek().text != text) return false;
    take();
    return true;
}

void Parser::expect(std::string_view text) {
    if (!accept(text)) error(peek().line, concat("expected '", text, "' but found '", peek().text, "'"));
}

uint64_t Parser::integer() {
    const bool negative = accept("-");
    Node node = number();
    if (node.kind != Node::Kind::integer) error(peek().line, "expected an integer");
    return negative ? 0 - node.bits : node.bits;
}

Node Parser::number() {
    const Token token = take();
    std::string text(token.text);
    Node node;
    node.kind = Node::Kind::integer;
    if (token.kind != Token::Kind::number) error(token.line, concat("expected a number but found '", text, "'"));
    if (text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F')) {
        node.kind = Node::Kind::real32;
        node.bits = std::stoull(text.substr(2), nullptr, 16);
    } else if (text.size() > 2 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
        node.kind = Node::Kind::real64;
        node.bits = std::stoull(text.substr(2), nullptr, 16);
    } else if (text.find('.') != std::string::npos) {
        node.kind = Node::Kind::real64;
        node.bits = __builtin_bit_cast(uint64_t, std::stod(text));
    } else {
        while (!text.empty() && (text.back() == 'U' || text.back() == 'u')) text.pop_back();
        if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B'))
            node.bits = std::stoull(text.substr(2), nullptr, 2);
        else
            node.bits = std::stoull(text, nullptr, 0);
    }
    return node;
}

void Parser::index_lines() {
    size_t start = 0;
    while (start <= text_.size()) {
        const size_t stop = std::min(text_.find('\n', start), text_.size());
        module->lines.emplace_back(text_.substr(start, stop - start));
        start = stop + 1;
    }
}

std::shared_ptr<const Module> Parser::parse() {
    index_lines();
    module_level();
    // Static variables first, then the dynamic ones, all of which start at the same place.
    uint32_t end = 0;
    for (auto& symbol : module->shared)
        if (!symbol.is_extern) {
            symbol.offset = align_up(end, symbol.alignment);
            end = symbol.offset + symbol.bytes;
        }
    uint32_t dynamic_alignment = 16;
    for (auto& symbol : module->shared)
        if (symbol.is_extern) dynamic_alignment = std::max(dynamic_alignment, symbol.alignment);
    module->static_shared_bytes = module->shared.empty() ? 0 : align_up(end, end ? dynamic_alignment : 1);
    for (auto& symbol : module->shared)
        if (symbol.is_extern) symbol.offset = module->static_shared_bytes;
    return module;
}

void Parser::module_level() {
    while (peek().kind != Token::Kind::end) {
        const Token token = take();
        if (token.kind != Token::Kind::modifier)
            error(token.line, concat("expected a directive but found '", token.text, "'"));
        const std::string_view name = token.text;
        bool is_extern = false;
        if (name == "version") {
            take();
        } else if (name == "target") {
            target(take());
            while (accept(",")) take();
        } else if (name == "address_size") {
            if (integer() != 64) error(token.line, "only 64-bit addresses are supported");
        } else if (name == "visible" || name == "weak" || name == "common") {
            continue;
        } else if (name == "extern") {
            is_extern = true;
            const Token what = take();
            if (what.text == "shared")
                variable(ModuleSymbol::Space::shared, is_extern, false);
            else if (what.text == "func") {
                while (!accept(";")) take();
            } else
                error(token.line, concat("extern .", what.text, " is not supported"));
        } else if (name == "shared") {
            variable(ModuleSymbol::Space::shared, false, false);
        } else if (name == "global" || name == "const") {
            variable(ModuleSymbol::Space::global, false, false);
        } else if (name == "entry") {
            entry_point();
        } else if (name == "func") {
            while (peek().text != "{" && peek().text != ";") take();
            if (peek().text == ";")
                take();
            else
                skip_braces();
        } else if (name == "file") {
            const uint32_t index = uint32_t(integer());
            const std::string_view path = take().text;
            module->files[index] = std::string(path.substr(1, path.size() - 2));
            while (accept(",")) integer();
        } else if (name == "section") {
            while (peek().text != "{") take();
            skip_braces();
        } else if (name == "pragma") {
            while (!accept(";")) take();
        } else {
            error(token.line, concat("unknown directive .", name));
        }
    }
}

void Parser::skip_braces() {
    expect("{");
    for (int depth = 1; depth > 0;) {
        const Token& token = take();
        if (token.kind == Token::Kind::end) error(token.line, "unbalanced braces");
        depth += token.text == "{" ? 1 : token.text == "}" ? -1 : 0;
    }
}

// .shared .align 1024 .b8 name[128];   .global .align 4 .u32 table[2] = {1, 2};
void Parser::variable(ModuleSymbol::Space space, bool is_extern, bool) {
    uint32_t alignment = 0;
    Type type = Type::none;
    while (peek().kind == Token::Kind::modifier) {
        const Token token = take();
        if (token.text == "align")
            alignment = uint32_t(integer());
        else if ((type = parse_type(token.text)) == Type::none && token.text != "attribute")
            error(token.line, concat("unknown variable attribute .", token.text));
    }
    const uint32_t line = peek().line;
    const std::string_view name = take().text;
    uint64_t elements = 1;
    while (accept("[")) {
        if (accept("]"))
            elements = 0;
        else {
            elements *= integer();
            expect("]");
        }
    }
    const unsigned size = type_bytes(type);
    alignment = std::max<uint32_t>(alignment, size);
    ModuleSymbol symbol{space, 0};
    if (space == ModuleSymbol::Space::shared) {
        symbol.value = module->shared.size();
        module->shared.push_back({std::string(name), 0, uint32_t(elements * size), alignment,
                                  is_extern || elements == 0});
    } else if (space == ModuleSymbol::Space::local) {
        symbol.value = align_up(entry->local_bytes, alignment);
        entry->local_bytes = uint32_t(symbol.value + elements * size);
    } else {
        auto& storage = module->globals.emplace_back(elements * size + 256);
        char* data = storage.data() + (256 - reinterpret_cast<uintptr_t>(storage.data()) % 256) % 256;
        symbol.value = reinterpret_cast<uint64_t>(data);
        if (accept("=")) {
            size_t index = 0;
            const auto one = [&] {
                const bool negative = accept("-");
                if (peek().kind != Token::Kind::number) error(line, "only numbers can initialise a variable");
                Node value = number();
                if (negative) value.bits = 0 - value.bits;
                if (index < elements) __builtin_memcpy(data + size * index++, &value.bits, size);
            };
            if (accept("{")) {
                while (!accept("}")) {
                    one();
                    accept(",");
                }
            } else {
                one();
            }
        }
    }
    symbols_[name] = symbol;
    expect(";");
}

void Parser::target(const Token& name) {
    try {
        target_ = parse_target(name.text);
    } catch (const Error& rejection) {
        error(name.line, rejection.what());
    }
    module->target = target_.name;
}

void Parser::entry_point() {
    if (target_.name.empty()) error(peek().line, "the text names no .target");
    entry = &module->entries.emplace_back();
    entry->name = std::string(take().text);
    scopes.clear();
    warp_values_.clear();
    scratch_.clear();
    if (accept("(")) {
        while (!accept(")")) {
            expect("param");
            uint32_t alignment = 0;
            Type type = Type::none;
            while (peek().kind == Token::Kind::modifier) {
                const Token token = take();
                if (token.text == "align")
                    alignment = uint32_t(integer());
                else if (parse_type(token.text) != Type::none)
                    type = parse_type(token.text);
                else if (token.text != "ptr" && token.text != "global" && token.text != "shared" &&
                         token.text != "const")
                    error(token.line, concat("unknown parameter attribute .", token.text));
            }
            const std::string_view name = take().text;
            uint64_t elements = 1;
            if (accept("[")) {
                elements = integer();
                expect("]");
            }
            const uint32_t offset = align_up(entry->param_bytes, std::max<uint32_t>(alignment, type_bytes(type)));
            symbols_[name] = {ModuleSymbol::Space::param, offset};
            entry->param_bytes = offset + uint32_t(elements * type_bytes(type));
            accept(",");
        }
    }
    while (peek().kind == Token::Kind::modifier) {
        const Token token = take();
        const auto list = [&](uint32_t* out) {
            int count = 0;
            do {
                const uint32_t value = uint32_t(integer());
                if (count < 3) out[count++] = value;
            } while (accept(","));
        };
        uint32_t values[3] = {1, 1, 1};
        if (token.text == "maxntid" || token.text == "reqntid") {
            list(values);
            entry->max_threads = values[0] * values[1] * values[2];
        } else if (token.text == "minnctapersm") {
            entry->min_blocks = uint32_t(integer());
        } else if (token.text == "maxnreg") {
            entry->max_registers = uint32_t(integer());
        } else if (token.text == "reqnctapercluster") {
            list(values);
            std::copy(values, values + 3, entry->cluster);
        } else if (token.text == "explicitcluster" || token.text == "blocksareclusters") {
        } else if (token.text == "maxclusterrank") {
            integer();
        } else if (token.text == "pragma") {
            while (!accept(";")) take();
        } else {
            error(token.line, concat("unknown directive .", token.text));
        }
    }
    body();
}

void Parser::body() {
    expect("{");
    scopes.emplace_back();
    for (;;) {
        const Token& token = peek();
        if (token.kind == Token::Kind::end) error(token.line, "the kernel does not end");
        if (token.text == "{" && token.kind == Token::Kind::symbol) {
            take();
            scopes.emplace_back();
        } else if (token.text == "}" && token.kind == Token::Kind::symbol) {
            take();
            if (scopes.size() == 1) break;
            close_scope();
        } else if (token.kind == Token::Kind::modifier) {
            const std::string_view name = token.text;
            const uint32_t line = token.line;
            take();
            if (name == "reg")
                registers();
            else if (name == "loc") {
                location();
            } else if (name == "shared")
                variable(ModuleSymbol::Space::shared, false, true);
            else if (name == "local")
                variable(ModuleSymbol::Space::local, false, true);
            else if (name == "param") {
                while (peek().kind == Token::Kind::modifier)
                    if (take().text == "align") integer();
                scopes.back().call_params[take().text] = new_row(8);
                while (!accept(";")) take();
            } else if (name == "pragma") {
                while (!accept(";")) take();
            } else {
                error(line, concat("unknown directive .", name));
            }
        } else if (token.kind == Token::Kind::word && peek(1).text == ":") {
            const std::string_view label = take().text;
            take();
            if (peek().text == "branchtargets") {
                take();
                auto& table = scopes.back().branch_tables[label];
                do table.push_back(take().text);
                while (accept(","));
                expect(";");
            } else if (peek().text == "callprototype") {
                while (!accept(";")) take();
            } else {
                scopes.back().labels[label] = uint32_t(entry->code.size());
            }
        } else if (token.text == ";") {
            take();
        } else {
            statement();
        }
    }
    finish_entry();
}

void Parser::registers() {
    Type type = Type::none;
    while (peek().kind == Token::Kind::modifier) {
        const Token token = take();
        if ((type = parse_type(token.text)) == Type::none)
            error(token.line, concat("unknown register type .", token.text));
    }
    do {
        const std::string_view name = take().text;
        RegisterRange range{};
        range.count = 1;
        bool is_prefix = false;
        if (accept("<")) {
            range.count = uint32_t(integer());
            is_prefix = true;
            expect(">");
        }
        range.bytes = type == Type::pred ? 0 : uint8_t(std::max(4u, type_bytes(type)));
        range.stride = range.bytes ? range.bytes * kLanes : 4;
        range.offset = align_up(entry->register_bytes, range.bytes ? 64 : 4);
        range.id = entry->register_count;
        entry->register_bytes = range.offset + range.stride * range.count;
        entry->register_count += range.count;
        (is_prefix ? scopes.back().prefixes : scopes.back().names)[name] = range;
    } while (accept(","));
    expect(";");
}

Operand Parser::new_row(uint8_t bytes) {
    const Operand row{
        align_up(entry->register_bytes, 64), entry->register_count++, Bank::registers, bytes, false, true};
    entry->register_bytes = row.offset + bytes * kLanes;
    return row;
}

// .loc file line column [, function_name label, inlined_at file line column] - it has no semicolon.
void Parser::location() {
    const uint32_t line = peek().line;
    source_file_ = uint32_t(integer());
    source_line_ = uint32_t(integer());
    outer_file_ = outer_line_ = 0;
    while (peek().line == line && peek().kind != Token::Kind::end && peek().text != ";")
        if (take().text == "inlined_at") {
            outer_file_ = uint32_t(integer());
            outer_line_ = uint32_t(integer());
        }
}

std::shared_ptr<const Module> load(std::string_view ptx) { return Parser(ptx).parse(); }

}  // namespace deep_gemm::simulator
