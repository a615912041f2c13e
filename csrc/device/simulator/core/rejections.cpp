// Instructions that a kernel may well have and that are not modelled: each is refused with what is missing.
#include <algorithm>

#include "parser.hpp"

namespace deep_gemm::simulator {

namespace {

struct Rejection {
    std::string_view mnemonic;
    std::string_view operation;  // a modifier that tells which of the mnemonic's instructions; empty: all
    std::string_view modifier;   // how one begins; empty: any
    const char* why;
};

constexpr const char* kSparse =
    "sparse products are not modelled: metadata and the selection of A's elements are missing";
constexpr const char* kCollector =
    "reuse of a collector buffer is not modelled: operands are read from memory each time, so that a wrong reuse would "
    "not be seen";

constexpr Rejection kRejections[] = {
    {"tcgen05", "shift", "", "tcgen05.shift is not modelled: rows of tensor memory cannot be moved"},
    {"tcgen05", "mma", "sp", kSparse},
    {"tcgen05", "mma", "ws",
     "tcgen05.mma.ws is not modelled: its layouts of D, and B's collector buffers, are missing; tcgen05.mma is"},
    {"tcgen05", "mma", "ashift", "tcgen05.mma.ashift is not modelled: rows of A in tensor memory cannot be moved"},
    {"tcgen05", "mma", "collector::a::use", kCollector},
    {"tcgen05", "mma", "collector::a::lastuse", kCollector},
    {"tcgen05", "mma", "collector::b", kCollector},
    {"tcgen05", "cp", "b8x16",
     "tcgen05.cp that unpacks 4- or 6-bit elements is not modelled: it copies bytes as they are"},
    {"tcgen05", "ld", "red", "tcgen05.ld.red is not modelled: loads without a reduction are"},
    {"wgmma", "mma_async", "sp", kSparse},
    {"mma", "", "sp", kSparse},
    {"mma", "m8n8k4", "f16", "mma.sync of Volta's shape m8n8k4 is not modelled: m16n8k8 and m16n8k16 are"},
    {"mma", "", "f64", "mma.sync of FP64 is not modelled: FP16, BF16, TF32, FP8 and integers are"},
    {"mma", "", "b1", "mma.sync of single bits is not modelled: integers of 4 and 8 bits are"},
    {"wmma", "", "", "wmma is not modelled: mma.sync, ldmatrix and stmatrix are"},
    {"cp", "tensor", "im2col", "im2col tensor copies are not modelled: tiled ones are"},
    {"cp", "", "cp_mask", "byte masks of bulk copies are not modelled: whole copies are"},
    {"st", "bulk", "", "st.bulk is not modelled: plain stores are"},
    {"red", "async", "mbarrier::complete_tx",
     "red.async to shared memory is not modelled: to global memory, and red and st.async are"},
    {"multimem", "", "", "multimem is not modelled: there is one device, and no multicast memory"},
    {"tex", "", "", "textures are not modelled"},
    {"suld", "", "", "surfaces are not modelled"},
    {"sust", "", "", "surfaces are not modelled"},
};

bool has(const Statement& statement, std::string_view beginning) {
    return std::any_of(statement.modifiers.begin(), statement.modifiers.end(),
                       [&](std::string_view modifier) { return modifier.starts_with(beginning); });
}

bool is(const Statement& statement, std::string_view operation) {
    return std::find(statement.modifiers.begin(), statement.modifiers.end(), operation) != statement.modifiers.end();
}

}  // namespace

const char* why_refused(const Statement& statement) {
    for (const Rejection& rejection : kRejections)
        if (statement.mnemonic == rejection.mnemonic &&
            (rejection.operation.empty() || is(statement, rejection.operation)) &&
            (rejection.modifier.empty() || has(statement, rejection.modifier)))
            return rejection.why;
    return nullptr;
}

}  // namespace deep_gemm::simulator
