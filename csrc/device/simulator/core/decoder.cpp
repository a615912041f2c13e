// Operands of one statement: names become places in the banks, and nothing may stay unread.
#include <algorithm>
#include <cstdio>

#include "../../../util/require.hpp"
#include "parser_state.hpp"

namespace deep_gemm::simulator {

Decoder::Decoder(Parser& parser, const Statement& statement, Instruction& instruction, Effects& effects)
    : out(instruction),
      parser_(parser),
      statement_(statement),
      effects_(effects),
      used_modifier_(statement.modifiers.size()),
      used_operand_(statement.operands.size()) {}

void Decoder::error(const std::string& what) const { parser_.error(statement_.line, what); }

bool Decoder::mod(std::string_view name) {
    for (size_t i = 0; i < statement_.modifiers.size(); ++i)
        if (!used_modifier_[i] && statement_.modifiers[i] == name) {
            used_modifier_[i] = true;
            return true;
        }
    return false;
}

bool Decoder::has(std::string_view name) const {
    return std::find(statement_.modifiers.begin(), statement_.modifiers.end(), name) != statement_.modifiers.end();
}

std::string_view Decoder::one_of(std::initializer_list<std::string_view> names) {
    for (const auto name : names)
        if (mod(name)) return name;
    return {};
}

void Decoder::ignore(std::initializer_list<std::string_view> names) {
    for (const auto name : names) mod(name);
}

std::vector<std::string_view> Decoder::rest() const {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < statement_.modifiers.size(); ++i)
        if (!used_modifier_[i]) names.push_back(statement_.modifiers[i]);
    return names;
}

void Decoder::take_shape(unsigned& m, unsigned& n, unsigned& k) {
    for (const auto name : rest())
        if (std::sscanf(std::string(name).c_str(), "m%un%uk%u", &m, &n, &k) == 3) {
            mod(name);
            return;
        }
}

void Decoder::consume_rest() { used_modifier_.assign(used_modifier_.size(), true); }

Type Decoder::type() {
    for (size_t i = 0; i < statement_.modifiers.size(); ++i)
        if (!used_modifier_[i])
            if (const Type found = parse_type(statement_.modifiers[i]); found != Type::none) {
                used_modifier_[i] = true;
                return found;
            }
    return Type::none;
}

Type Decoder::need_type() {
    const Type found = type();
    if (found == Type::none) error("the instruction names no type");
    return found;
}

const Node& Decoder::node(size_t index) {
    if (index >= count()) error(concat("operand ", index + 1, " is missing"));
    used_operand_[index] = true;
    return statement_.operands[index];
}

bool Decoder::is_predicate(size_t index) const {
    if (index >= count()) return false;
    RegisterRange range;
    uint32_t number;
    const Node& node = statement_.operands[index];
    return node.kind == Node::Kind::name && parser_.find_register(node.name, range, number) && range.bytes == 0;
}

Operand Decoder::source_any(const Node& node, unsigned bytes) {
    if (node.kind == Node::Kind::name) {
        RegisterRange range;
        uint32_t index;
        if (parser_.find_register(node.name, range, index)) {
            if (node.displacement) error("arithmetic on a register operand");
            if (range.bytes == 0) error(concat("'", node.name, "' is a predicate, a value is needed"));
            const Operand operand{
                range.offset + index * range.stride, range.id + index, Bank::registers, range.bytes, false, true};
            effects_.reads.push_back(operand);
            return operand;
        }
        ModuleSymbol symbol;
        if (parser_.find_symbol(node.name, symbol)) {
            if (symbol.space == ModuleSymbol::Space::shared)
                return parser_.warp_value({WarpValue::Kind::shared_address, uint32_t(symbol.value), node.displacement,
                                           uint8_t(bytes)});
            return parser_.constant_row(symbol.value + uint64_t(node.displacement), 0, bytes);
        }
        if (const Special special = parse_special(node.name); special != Special::unknown)
            return parser_.warp_value({WarpValue::Kind::special, uint32_t(special), 0, uint8_t(bytes)});
        if (node.name == "WARP_SZ") return parser_.constant_row(kLanes, 0, bytes);
        error(concat("unknown name '", node.name, "'"));
    }
    if (node.kind == Node::Kind::integer)
        return parser_.constant_row(node.bits, bytes == 16 && int64_t(node.bits) < 0 ? ~uint64_t(0) : 0, bytes);
    if (node.kind == Node::Kind::real32) return parser_.constant_row(node.bits, 0, bytes);
    if (node.kind == Node::Kind::real64) return parser_.constant_row(node.bits, 0, bytes);
    error("this operand must be a register or an immediate");
}

Operand Decoder::source(const Node& node, Type type) {
    const unsigned bytes = type == Type::pred ? 0 : std::max(4u, type_bytes(type));
    if (bytes == 0) return predicate(node);
    if (node.kind == Node::Kind::real32 || node.kind == Node::Kind::real64) {
        double value = node.kind == Node::Kind::real32 ? double(__builtin_bit_cast(float, uint32_t(node.bits)))
                                                       : __builtin_bit_cast(double, node.bits);
        uint64_t bits = node.bits;
        if (type == Type::f64 || type == Type::b64)
            bits = node.kind == Node::Kind::real64 ? bits : __builtin_bit_cast(uint64_t, value);
        else if (type == Type::f16)
            bits = float_to_half(float(value));
        else if (type == Type::bf16)
            bits = float_to_bf16(float(value));
        else if (type == Type::f32 || type == Type::tf32 || type == Type::b32)
            bits = node.kind == Node::Kind::real32 ? bits : __builtin_bit_cast(uint32_t, float(value));
        else
            error("a floating-point immediate does not fit this type");
        return parser_.constant_row(bits, 0, bytes);
    }
    if (node.kind == Node::Kind::integer && (type == Type::f32 || type == Type::f64)) {
        // Decimal integers are values when the type is a float.
        const uint64_t bits = type == Type::f32 ? __builtin_bit_cast(uint32_t, float(int64_t(node.bits)))
                                                : __builtin_bit_cast(uint64_t, double(int64_t(node.bits)));
        return parser_.constant_row(bits, 0, bytes);
    }
    if (node.kind == Node::Kind::integer && type_bytes(type) < 4)
        return parser_.constant_row(node.bits & (type_bytes(type) == 1 ? 0xff : 0xffff), 0, bytes);
    const Operand operand = source_any(node, bytes);
    if (operand.bytes != bytes)
        error(concat("operand '", node.name, "' has ", int(operand.bytes) * 8, " bits, the instruction takes ",
                     bytes * 8));
    return operand;
}

Operand Decoder::dest_any(const Node& node, unsigned bytes) {
    if (node.kind != Node::Kind::name) error("the destination must be a register");
    if (node.name == "_") return parser_.scratch(bytes);
    RegisterRange range;
    uint32_t index;
    if (!parser_.find_register(node.name, range, index)) error(concat("unknown register '", node.name, "'"));
    const Operand operand{
        range.offset + index * range.stride, range.id + index, Bank::registers, range.bytes, false, true};
    effects_.writes.push_back(operand);
    return operand;
}

Operand Decoder::dest(const Node& node, Type type) {
    const unsigned bytes = type == Type::pred ? 0 : std::max(4u, type_bytes(type));
    const Operand operand = dest_any(node, bytes);
    if (operand.bytes != bytes)
        error(concat("destination '", node.name, "' has ", int(operand.bytes) * 8, " bits, the instruction gives ",
                     bytes * 8));
    return operand;
}

Operand Decoder::predicate(const Node& node) {
    if (node.kind == Node::Kind::integer) return parser_.constant_row(node.bits, 0, 0);
    RegisterRange range;
    uint32_t index;
    if (node.kind != Node::Kind::name || !parser_.find_register(node.name, range, index) || range.bytes != 0)
        error(concat("'", node.name, "' is not a predicate"));
    const Operand operand{
        range.offset + index * range.stride, range.id + index, Bank::registers, 0, node.negated, true};
    effects_.reads.push_back(operand);
    return operand;
}

Operand Decoder::predicate_dest(const Node& node) { return dest(node, Type::pred); }

std::vector<Operand> Decoder::sources(const Node& node, Type type) {
    std::vector<Operand> operands;
    if (node.kind != Node::Kind::vector) operands.push_back(source(node, type));
    for (const Node& child : node.children) operands.push_back(source(child, type));
    return operands;
}

std::vector<Operand> Decoder::dests(const Node& node, Type type) {
    std::vector<Operand> operands;
    if (node.kind != Node::Kind::vector) operands.push_back(dest(node, type));
    for (const Node& child : node.children) operands.push_back(dest(child, type));
    return operands;
}

int64_t Decoder::constant(const Node& node) {
    if (node.kind != Node::Kind::integer) error("this operand must be an integer constant");
    return int64_t(node.bits);
}

Operand Decoder::address(const Node& node, int64_t& displacement, size_t child) {
    if (node.kind != Node::Kind::address) error("this operand must be an address in brackets");
    if (child >= node.children.size()) error("the address is empty");
    Node base = node.children[child];
    if (base.kind == Node::Kind::vector) error("the address must start with a base");
    RegisterRange range;
    uint32_t index;
    displacement = 0;
    if (base.kind == Node::Kind::name && parser_.find_register(base.name, range, index)) {
        displacement = base.displacement;
        base.displacement = 0;
    }
    return source_any(base, 8);
}

const Operand* Decoder::call_param(const Node& node) const {
    const Node& name = node.kind == Node::Kind::address && !node.children.empty() ? node.children[0] : node;
    return name.kind == Node::Kind::name && name.displacement == 0 ? parser_.find_call_param(name.name) : nullptr;
}

uint32_t Decoder::label(size_t index) {
    const Node& target = node(index);
    parser_.scopes.back().fixups.push_back({uint32_t(parser_.entry->code.size()), nullptr, 0, target.name,
                                            statement_.line});
    return 0;
}

Extra& Decoder::extra() {
    if (!extra_) {
        extra_ = &parser_.module->extras.emplace_back();
        out.extra = extra_;
    }
    return *extra_;
}

Extra& Decoder::branch_targets(size_t index) {
    Extra& extras = extra();
    const Node& table = node(index);
    for (auto scope = parser_.scopes.rbegin(); scope != parser_.scopes.rend(); ++scope)
        if (const auto found = scope->branch_tables.find(table.name); found != scope->branch_tables.end()) {
            extras.targets.resize(found->second.size());
            for (size_t i = 0; i < found->second.size(); ++i)
                parser_.scopes.back().fixups.push_back({0, &extras, uint32_t(i), found->second[i], statement_.line});
            return extras;
        }
    error(concat("no .branchtargets named '", table.name, "'"));
}

void Decoder::finish() {
    if (!out.execute) error("the instruction was not decoded");
    for (size_t i = 0; i < used_modifier_.size(); ++i)
        if (!used_modifier_[i])
            error(concat("modifier '.", statement_.modifiers[i], "' of ", statement_.mnemonic, " is not supported"));
    for (size_t i = 0; i < used_operand_.size(); ++i)
        if (!used_operand_[i]) error(concat("operand ", i + 1, " of ", statement_.mnemonic, " is not understood"));
}

Special parse_special(std::string_view name) {
    static const std::unordered_map<std::string_view, Special> kSpecials = {
        {"%tid.x", Special::tid_x},
        {"%tid.y", Special::tid_y},
        {"%tid.z", Special::tid_z},
        {"%ntid.x", Special::ntid_x},
        {"%ntid.y", Special::ntid_y},
        {"%ntid.z", Special::ntid_z},
        {"%ctaid.x", Special::ctaid_x},
        {"%ctaid.y", Special::ctaid_y},
        {"%ctaid.z", Special::ctaid_z},
        {"%nctaid.x", Special::nctaid_x},
        {"%nctaid.y", Special::nctaid_y},
        {"%nctaid.z", Special::nctaid_z},
        {"%laneid", Special::laneid},
        {"%warpid", Special::warpid},
        {"%nwarpid", Special::nwarpid},
        {"%smid", Special::smid},
        {"%nsmid", Special::nsmid},
        {"%gridid", Special::gridid},
        {"%clusterid.x", Special::clusterid_x},
        {"%clusterid.y", Special::clusterid_y},
        {"%clusterid.z", Special::clusterid_z},
        {"%nclusterid.x", Special::nclusterid_x},
        {"%nclusterid.y", Special::nclusterid_y},
        {"%nclusterid.z", Special::nclusterid_z},
        {"%cluster_ctaid.x", Special::cluster_ctaid_x},
        {"%cluster_ctaid.y", Special::cluster_ctaid_y},
        {"%cluster_ctaid.z", Special::cluster_ctaid_z},
        {"%cluster_nctaid.x", Special::cluster_nctaid_x},
        {"%cluster_nctaid.y", Special::cluster_nctaid_y},
        {"%cluster_nctaid.z", Special::cluster_nctaid_z},
        {"%cluster_ctarank", Special::cluster_ctarank},
        {"%cluster_nctarank", Special::cluster_nctarank},
        {"%is_explicit_cluster", Special::is_explicit_cluster},
        {"%lanemask_eq", Special::lanemask_eq},
        {"%lanemask_le", Special::lanemask_le},
        {"%lanemask_lt", Special::lanemask_lt},
        {"%lanemask_ge", Special::lanemask_ge},
        {"%lanemask_gt", Special::lanemask_gt},
        {"%dynamic_smem_size", Special::dynamic_smem_size},
        {"%total_smem_size", Special::total_smem_size},
        {"%aggr_smem_size", Special::aggr_smem_size},
        {"%clock", Special::clock},
        {"%clock64", Special::clock64},
        {"%clock_hi", Special::clock_hi},
        {"%globaltimer", Special::globaltimer},
        {"%globaltimer_lo", Special::globaltimer_lo},
        {"%globaltimer_hi", Special::globaltimer_hi}};
    const auto found = kSpecials.find(name);
    return found == kSpecials.end() ? Special::unknown : found->second;
}

}  // namespace deep_gemm::simulator
