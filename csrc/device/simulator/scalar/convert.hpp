// What a cvt asks for.
#pragma once

#include "../core/execute.hpp"

namespace deep_gemm::simulator {

struct Conversion {
    Type from, to;
    Rounding rounding = Rounding::nearest;
    bool integer_rounding = false, saturate = false, relu = false, flush = false;
};

inline Conversion unpack(const Instruction& in) {
    return {Type(in.flags & 0xff),    Type(in.flags >> 8 & 0xff), Rounding(in.flags >> 16 & 15),
            bool(in.flags >> 20 & 1), bool(in.flags >> 21 & 1),   bool(in.flags >> 22 & 1),
            bool(in.flags >> 23 & 1)};
}

/// Two values in a register, floats of 16 bits or less. False: it is of no such form.
bool decode_packed_cvt(Decoder& decoder, const Conversion& c);

}  // namespace deep_gemm::simulator
