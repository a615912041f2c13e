// vprintf: what a thread prints goes to standard output at once, lane after lane, as C has it.
#include <cstdio>
#include <string>

#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "../memory/memory.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr size_t kLongest = 1 << 16;  // of a string that does not end

/// Arguments of one lane, as the compiler lays them: each at a multiple of its size.
class Arguments {
public:
    Arguments(Warp& warp, unsigned lane, uint64_t address) : warp_(warp), lane_(lane), next_(address) {}

    uint64_t take(unsigned bytes) {
        ++count_;
        next_ = (next_ + bytes - 1) / bytes * bytes;
        const Place place = resolve(warp_, Space::generic, next_, bytes, false, lane_);
        uint64_t value = 0;
        if (place.data) __builtin_memcpy(&value, place.data, bytes);
        next_ += bytes;
        return value;
    }
    std::string text(uint64_t address) {
        std::string found;
        for (; found.size() < kLongest; ++address) {
            const Place place = resolve(warp_, Space::generic, address, 1, false, lane_);
            if (!place.data || *place.data == 0) break;
            found += *place.data;
        }
        return found;
    }
    int count() const { return count_; }

private:
    Warp& warp_;
    unsigned lane_;
    uint64_t next_;
    int count_ = 0;
};

template <class T>
void append(std::string& out, const std::string& conversion, T value) {
    char fits[64];
    const int length = std::snprintf(fits, sizeof(fits), conversion.c_str(), value);
    if (length < int(sizeof(fits))) {
        out.append(fits, size_t(std::max(length, 0)));
        return;
    }
    std::string longer(size_t(length) + 1, '\0');
    std::snprintf(longer.data(), longer.size(), conversion.c_str(), value);
    out.append(longer, 0, size_t(length));
}

/// One conversion, `format[at]` being behind its '%'. False: C has no such.
bool convert(std::string& out, const std::string& format, size_t& at, Arguments& arguments) {
    std::string given = "%";
    const auto number = [&] {
        if (at < format.size() && format[at] == '*')
            given += std::to_string(int32_t(arguments.take(4))), ++at;
        else
            while (at < format.size() && format[at] >= '0' && format[at] <= '9') given += format[at++];
    };
    while (at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos)
        given += format[at++];
    number();
    if (at < format.size() && format[at] == '.') given += format[at++], number();
    unsigned narrow = 0;
    bool wide = false;
    for (; at < format.size() && std::string_view("hlLqjzt").find(format[at]) != std::string_view::npos; ++at)
        format[at] == 'h' ? void(++narrow) : void(wide = true);
    if (at == format.size()) return false;
    const char kind = format[at++];
    switch (kind) {
        case 'd':
        case 'i': {
            int64_t value = int64_t(arguments.take(wide ? 8 : 4));
            if (!wide) value = narrow == 0 ? int32_t(value) : narrow == 1 ? int16_t(value) : int8_t(value);
            append(out, given + "ll" + kind, static_cast<long long>(value));
            return true;
        }
        case 'u':
        case 'o':
        case 'x':
        case 'X': {
            uint64_t value = arguments.take(wide ? 8 : 4);
            if (narrow > 0) value &= narrow == 1 ? 0xffff : 0xff;
            append(out, given + "ll" + kind, static_cast<unsigned long long>(value));
            return true;
        }
        case 'c':
            append(out, given + kind, int(arguments.take(4)));
            return true;
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
        case 'a':
        case 'A':
            append(out, given + kind, std::bit_cast<double>(arguments.take(8)));
            return true;
        case 's':
            append(out, given + kind, arguments.text(arguments.take(8)).c_str());
            return true;
        case 'p':
            append(out, given + kind, reinterpret_cast<void*>(arguments.take(8)));
            return true;
        default:
            return false;
    }
}

}  // namespace

/// d: how many arguments there were, as CUDA's printf returns it.
Step print(Warp& w, const Instruction& in, uint32_t lanes) {
    std::string out;
    for (uint32_t left = lanes; left; left &= left - 1) {
        const unsigned lane = std::countr_zero(left);
        Arguments arguments(w, lane, read_any(w, in.b, lane));
        const std::string format = arguments.text(read_any(w, in.a, lane));
        for (size_t at = 0; at < format.size();) {
            if (format[at] != '%') {
                out += format[at++];
                continue;
            }
            const size_t begin = at++;
            if (at < format.size() && format[at] == '%') {
                out += format[at++];
            } else if (!convert(out, format, at, arguments)) {
                stop(*w.cluster, "unsupported",
                     concat("printf has no conversion '", format.substr(begin, at - begin), "' in \"", format, "\""),
                     &w);
            }
        }
        if (in.d.present) write_any(w, in.d, lane, uint64_t(arguments.count()));
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
    ++w.cluster->progress;
    return Step::next;
}

}  // namespace deep_gemm::simulator
