// Decoded PTX: what the parser produces and the interpreter runs.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "types.hpp"

namespace deep_gemm::simulator {

struct Warp;
struct Instruction;

/// What a handler says of the program counter: go on, "I set it", "I wait: call me again", "this fragment has ended".
enum class Step : uint8_t { next, jumped, blocked, exited };
/// Executes one instruction for the lanes in `lanes`.
using Handler = Step (*)(Warp&, const Instruction&, uint32_t lanes);

/// Where a row of 32 lane values lives. Predicates are one 32-bit lane mask.
enum class Bank : uint8_t { registers, constants, warp_values };

struct Operand {
    uint32_t offset = 0;  // bytes from the start of its bank
    uint32_t id = ~0u;    // register number for the shadow tables; ~0 for what is no register
    Bank bank = Bank::constants;
    uint8_t bytes = 0;     // bytes a lane: 4, 8 or 16; 0 for a predicate mask
    bool negated = false;  // predicates only
    bool present = false;
};

/// Lanes that must stand at this instruction together before it may execute.
enum class Gather : uint8_t { none, warp, members };

/// Operands beyond the fixed few: vectors, descriptors, and whatever a group of instructions needs.
struct Extra {
    std::vector<Operand> d, a, b, c;
    std::vector<Operand> scales;  // of mma.sync: register, byte and thread for A, and for B
    int values[12] = {};
    std::vector<uint32_t> targets;
    std::string text;
};

struct Instruction {
    Handler execute = nullptr;
    Operand d, e;        // destinations
    Operand a, b, c, x;  // sources
    Operand guard;
    int64_t displacement = 0;  // of an address in `a` (or the immediate of an instruction that has one)
    int64_t displacement2 = 0;
    const Extra* extra = nullptr;
    uint32_t target = 0;
    uint32_t flags = 0;
    Gather gather = Gather::none;
    bool is_select = false;  // d = c ? a : b: what was not chosen does not matter
    bool is_move = false;    // register copies are ptxas's business: not ordered against wgmma.fence
    bool is_wgmma = false;
    bool is_tensor_load = false;
    bool sets_taint = false;  // the handler says itself which results come from uninitialised memory
    bool is_branch = false;
    uint16_t opcode = 0;       // index into Module::opcodes, for statistics
    uint32_t line = 0;         // of the PTX text
    uint32_t source_file = 0;  // .loc, 0 when there is none
    uint32_t source_line = 0;
    uint32_t outer_file = 0;  // where the function of that line was inlined
    uint32_t outer_line = 0;
};

/// All registers an instruction reads and writes, for the checks that follow values.
struct Effects {
    std::vector<Operand> reads, writes;
};

struct SharedSymbol {
    std::string name;
    uint32_t offset = 0;  // from the start of the block's shared memory; assigned at the end of parsing
    uint32_t bytes = 0, alignment = 1;
    bool is_extern = false;
};

/// A row of values that depends on the warp (thread index, shared-memory address ...), filled when the warp starts.
struct WarpValue {
    enum class Kind : uint8_t { special, shared_address, local_address } kind;
    uint32_t index;  // which special register, or which symbol
    int64_t addend;
    uint8_t bytes;
};

enum class Special : uint8_t {
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
    warpid,
    nwarpid,
    smid,
    nsmid,
    gridid,
    clusterid_x,
    clusterid_y,
    clusterid_z,
    nclusterid_x,
    nclusterid_y,
    nclusterid_z,
    cluster_ctaid_x,
    cluster_ctaid_y,
    cluster_ctaid_z,
    cluster_nctaid_x,
    cluster_nctaid_y,
    cluster_nctaid_z,
    cluster_ctarank,
    cluster_nctarank,
    is_explicit_cluster,
    lanemask_eq,
    lanemask_le,
    lanemask_lt,
    lanemask_ge,
    lanemask_gt,
    dynamic_smem_size,
    total_smem_size,
    aggr_smem_size,
    clock,
    clock64,
    clock_hi,
    globaltimer,
    globaltimer_lo,
    globaltimer_hi,  // these change while running
    unknown
};

struct Entry {
    std::string name;
    std::vector<Instruction> code;
    std::vector<Effects> effects;  // parallel to code
    uint32_t register_bytes = 0, register_count = 0;
    std::vector<WarpValue> warp_values;
    uint32_t warp_value_bytes = 0;
    uint32_t param_bytes = 0;
    uint32_t local_bytes = 0;
    uint32_t max_threads = 0;  // .maxntid / .reqntid
    uint32_t min_blocks = 0, max_registers = 0;
    uint32_t cluster[3] = {0, 0, 0};  // .reqnctapercluster
    bool has_wgmma = false, has_tensor_load = false;
};

class Module {
public:
    std::deque<Entry> entries;
    std::vector<std::string> opcodes;
    std::vector<std::string> lines;                   // the PTX text, for reports
    std::unordered_map<uint32_t, std::string> files;  // .file
    std::vector<char> constants;                      // rows of immediates
    std::vector<SharedSymbol> shared;
    uint32_t static_shared_bytes = 0;
    std::deque<Extra> extras;
    std::deque<std::vector<char>> globals;  // .global and .const variables
    std::string target;

    const Entry& find(const char* name) const;
    std::string line_text(uint32_t line) const;
    std::string location(const Instruction& instruction) const;  // "PTX line 12 `...` (file.cu:7)"
};

// The window through which generic addresses reach shared and local memory. Host pointers never look like these.
constexpr uint64_t kSharedWindow = uint64_t(0x71) << 56;
constexpr uint64_t kLocalWindow = uint64_t(0x72) << 56;
constexpr uint64_t kWindowMask = uint64_t(0xff) << 56;
constexpr uint32_t kRankShift = 24;         // the rank in the cluster stands in the high bits of a shared address
constexpr uint32_t kReservedShared = 1024;  // as on the GPU, the first KiB belongs to the system
constexpr uint32_t kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;

}  // namespace deep_gemm::simulator
