#include "hidden_waits.hpp"

namespace deep_gemm::jit::sm90 {
namespace {

/// The line around a place in the log, without "ptxas info    : " before its message.
std::string message_around(const std::string& log, size_t place) {
    const size_t begin = log.rfind('\n', place) + 1;  // npos + 1 is 0
    const std::string line = log.substr(begin, log.find('\n', place) - begin);
    const size_t code = line.find("(C");
    return code == std::string::npos ? line : line.substr(code);
}

}  // namespace

std::string hidden_waits(const std::string& log) {
    std::string reason;
    // C7510 to C7515 or so, one for each reason, and C7517; the words are the same in all of them.
    for (const char* phrase : {"wgmma.mma_async instructions are serialized", "warpgroup.wait is injected"})
        if (const size_t place = log.find(phrase); place != std::string::npos) reason = message_around(log, place);
    return reason;
}

}  // namespace deep_gemm::jit::sm90
