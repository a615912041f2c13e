#include "require.hpp"

#include <sstream>

namespace deep_gemm {

std::string concat_parts(std::initializer_list<Printed> parts) {
    std::ostringstream out;
    for (const Printed& part : parts) part.print(out);
    return out.str();
}

void fail_with(ErrorKind kind, std::initializer_list<Printed> parts) { throw Error(kind, concat_parts(parts)); }

}  // namespace deep_gemm
