// Memory that a kernel may touch. Only the simulator reads it: it refuses any other access.
#pragma once

#include <cstddef>

namespace deep_gemm {

struct Extent {
    const void* data = nullptr;
    size_t bytes = 0;
    const char* name = "";  // for messages: "a", "scales of b" ...; must outlive the launch
    bool writable = false;
    bool exchanged = false;  // blocks of one launch tell each other something here
};

}  // namespace deep_gemm
