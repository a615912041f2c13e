// PTX text -> tokens -> operands, and the builder through which each group of instructions decodes itself.
#pragma once

#include <initializer_list>

#include "program.hpp"

namespace deep_gemm::simulator {

struct Token {
    enum class Kind : uint8_t { word, modifier, number, symbol, string, end } kind = Kind::end;
    std::string_view text;
    uint32_t line = 0;
};

std::vector<Token> tokenize(std::string_view text);

/// One operand as written: a name, a number, {a, b}, [base + 4, {..}], a|b.
struct Node {
    enum class Kind : uint8_t { name, integer, real32, real64, vector, address, pair } kind = Kind::name;
    std::string_view name;
    uint64_t bits = 0;
    int64_t displacement = 0;  // name+4, and [name+4]
    bool negated = false;      // !p or -name
    std::vector<Node> children;
};

struct Statement {
    std::string_view mnemonic;
    std::vector<std::string_view> modifiers;
    std::vector<Node> operands;
    uint32_t line = 0;
};

/// What is missing of an instruction that is known and not modelled; null for all others.
const char* why_refused(const Statement& statement);  // rejections.cpp

class Parser;

/// Hands one statement to its decoder and checks that every modifier and operand was understood.
class Decoder {
public:
    Decoder(Parser& parser, const Statement& statement, Instruction& instruction, Effects& effects);

    Instruction& out;

    std::string_view mnemonic() const { return statement_.mnemonic; }
    /// Consume a modifier if it is there.
    bool mod(std::string_view name);
    /// Consume whichever of these stands there; empty if none.
    std::string_view one_of(std::initializer_list<std::string_view> names);
    /// Consume the next type modifier, in order; Type::none when there is no more.
    Type type();
    Type need_type();
    /// Consume modifiers that change nothing here (cache and eviction hints, weak, ...).
    void ignore(std::initializer_list<std::string_view> names);
    /// Consume the modifier mMnNkK; the numbers stay as they are where there is none.
    void take_shape(unsigned& m, unsigned& n, unsigned& k);
    /// Modifiers nobody has consumed so far, in order.
    std::vector<std::string_view> rest() const;
    void consume_rest();
    bool has(std::string_view name) const;

    size_t count() const { return statement_.operands.size(); }
    const Node& node(size_t index);  // marks it as used
    bool is_vector(size_t index) const {
        return index < count() && statement_.operands[index].kind == Node::Kind::vector;
    }
    bool is_address(size_t index) const {
        return index < count() && statement_.operands[index].kind == Node::Kind::address;
    }
    bool is_pair(size_t index) const { return index < count() && statement_.operands[index].kind == Node::Kind::pair; }
    bool is_predicate(size_t index) const;

    Operand source(size_t index, Type type) { return source(node(index), type); }
    Operand source(const Node& node, Type type);
    Operand source_any(const Node& node, unsigned bytes);  // any register width; immediates in rows of `bytes`
    Operand dest(size_t index, Type type) { return dest(node(index), type); }
    Operand dest(const Node& node, Type type);
    Operand dest_any(const Node& node, unsigned bytes);
    Operand predicate(size_t index) { return predicate(node(index)); }
    Operand predicate(const Node& node);
    Operand predicate_dest(const Node& node);
    std::vector<Operand> sources(const Node& node, Type type);
    std::vector<Operand> dests(const Node& node, Type type);
    int64_t constant(size_t index) { return constant(node(index)); }
    int64_t constant(const Node& node);
    /// Base and displacement of [base + displacement]; `width` is the address width in bytes of an immediate base.
    Operand address(const Node& node, int64_t& displacement, size_t child = 0);
    /// The argument or result of a call that `node` names, by itself or in brackets; null for all else.
    const Operand* call_param(const Node& node) const;
    uint32_t label(size_t index);
    Extra& extra();
    Extra& branch_targets(size_t index);

    void set(Handler handler) { out.execute = handler; }
    void finish();
    [[noreturn]] void error(const std::string& what) const;

private:
    Parser& parser_;
    const Statement& statement_;
    Effects& effects_;
    std::vector<bool> used_modifier_, used_operand_;
    Extra* extra_ = nullptr;
};

using DecodeFunction = void (*)(Decoder&);
using DecodeTable = std::unordered_map<std::string_view, DecodeFunction>;

// Each file of instructions adds its mnemonics here.
void add_integer(DecodeTable&);
void add_bits(DecodeTable&);
void add_float(DecodeTable&);
void add_compare(DecodeTable&);
void add_convert(DecodeTable&);
void add_move(DecodeTable&);
void add_control(DecodeTable&);
void add_warp(DecodeTable&);
void add_memory(DecodeTable&);
void add_fence(DecodeTable&);
void add_atomic(DecodeTable&);
void add_barrier(DecodeTable&);
void add_mbarrier(DecodeTable&);
void add_bulk(DecodeTable&);
void add_tensor_maps(DecodeTable&);
void add_matrix(DecodeTable&);
void add_mma_sync(DecodeTable&);
void add_wgmma(DecodeTable&);
void add_tensor_memory(DecodeTable&);

}  // namespace deep_gemm::simulator
