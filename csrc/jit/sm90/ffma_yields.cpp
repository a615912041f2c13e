#include "ffma_yields.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "../../config/sm90/ffma_line.hpp"
#include "../../util/require.hpp"

namespace deep_gemm::jit::sm90 {
namespace {

using deep_gemm::sm90::kFfmaMark, deep_gemm::sm90::kFfmaNone, deep_gemm::sm90::kFfmaOneOf;
// An instruction is two words of 64 bits (as nvdisasm lists them, CUDA 13.0).
struct Instruction {
    uint64_t low, high;

    uint64_t opcode() const { return low & 0xFFF; }
    /// Operands in the order of the listing: the target, then what is multiplied.
    uint64_t target() const { return low >> 16 & 0xFF; }
    uint64_t factor(int i) const { return low >> (24 + 8 * i) & 0xFF; }
};
constexpr uint64_t kFfma = 0x223;                        // of four registers
constexpr uint64_t kBranch = 0x947, kWarpgroup = 0x9C5;  // a jump; a fence of wgmma or a wait for them
constexpr uint64_t kQgmma = 0x9F3;                       // FP8's wgmma
constexpr uint64_t kNoYield = uint64_t{1} << 45;         // of the high word
constexpr uint64_t reuse(int i) { return uint64_t{1} << (58 + i); }
constexpr uint64_t kAllReuse = reuse(0) | reuse(1) | reuse(2) | reuse(3);

/// Zeros beyond the end.
template <typename T>
T read(const std::string& bytes, size_t at) {
    T value{};
    if (at <= bytes.size() && bytes.size() - at >= sizeof(T)) std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
}

void set_yields_of_code(std::string& cubin, size_t begin, size_t end, int every) {
    int run = 0;
    for (size_t at = begin; at + sizeof(Instruction) <= end; at += sizeof(Instruction)) {
        auto instruction = read<Instruction>(cubin, at);
        const uint64_t opcode = instruction.opcode();
        if (opcode == kBranch || opcode == kWarpgroup || opcode == kQgmma) run = 0;
        if (opcode != kFfma) continue;
        if (every > 0 && ++run % every == 0) {
            instruction.high &= ~(kNoYield | kAllReuse);
        } else {
            instruction.high |= kNoYield;
            if (at + 2 * sizeof(Instruction) <= end) {
                const auto next = read<Instruction>(cubin, at + sizeof(Instruction));
                for (const int i : {0, 1})
                    if (next.opcode() == kFfma && next.factor(i) == instruction.factor(i) &&
                        instruction.factor(i) != instruction.target())
                        instruction.high |= reuse(i);
            }
        }
        std::memcpy(cubin.data() + at, &instruction, sizeof(instruction));
    }
}

/// Nothing: as ptxas has it.
std::optional<int> yields_of(const std::string& source) {
    const size_t mark = source.find(kFfmaMark);
    if (mark == std::string::npos) return std::nullopt;
    const std::string_view asked = std::string_view(source).substr(mark + kFfmaMark.size());
    if (asked.starts_with(kFfmaNone)) return 0;
    const int every = asked.starts_with(kFfmaOneOf) ? std::atoi(asked.data() + kFfmaOneOf.size()) : 0;
    require(every > 0, "a line of the source that begins with \"", kFfmaMark, "\" goes on with \"", kFfmaNone,
            "\" or with \"", kFfmaOneOf, "\" and a number");
    return every;
}

void set_yields(std::string& cubin, int every) {
    // An ELF file of 64 bits: where the table of sections is, how large an entry, how many, and which has their names.
    // Of a file that is something else no section is found, and it stays as it is: these are only hints.
    if (!cubin.starts_with("\177ELF\002")) return;
    const auto headers = read<uint64_t>(cubin, 40);
    const auto size = read<uint16_t>(cubin, 58), count = read<uint16_t>(cubin, 60), names = read<uint16_t>(cubin, 62);
    const auto names_at = read<uint64_t>(cubin, headers + size_t{names} * size + 24);
    for (size_t section = headers; section < headers + size_t{count} * size; section += size) {
        const size_t name = names_at + read<uint32_t>(cubin, section);
        const auto begin = read<uint64_t>(cubin, section + 24), bytes = read<uint64_t>(cubin, section + 32);
        const bool inside = begin <= cubin.size() && bytes <= cubin.size() - begin;
        if (inside && name < cubin.size() && cubin.compare(name, 6, ".text.") == 0)
            set_yields_of_code(cubin, begin, begin + bytes, every);
    }
}

}  // namespace

void finish_ffma_yields(const std::string& source, std::string& cubin) {
    if (const std::optional<int> every = yields_of(source)) set_yields(cubin, *every);
}

}  // namespace deep_gemm::jit::sm90
