// The little JSON that the cache directory holds: one object of numbers and strings, one field a line.
#pragma once

#include <string>

#include "require.hpp"

namespace deep_gemm::flat_json {

/// Text that needs no escape in JSON.
inline std::string plain(std::string text) {
    for (char& letter : text)
        if (letter == '"' || letter == '\\' || static_cast<unsigned char>(letter) < ' ') letter = ' ';
    return text;
}

/// A line with a field of text.
inline std::string text(const char* name, const std::string& value) {
    return concat("  \"", name, "\": \"", plain(value), "\",\n");
}

/// The value of a field. Strings hold no escapes: see `plain`.
inline std::string field(const std::string& json, const std::string& name) {
    const std::string start = "\"" + name + "\": ";
    size_t begin = json.find(start);
    if (begin == std::string::npos) return "";
    begin += start.size();
    const bool quoted = begin < json.size() && json[begin] == '"';
    const size_t end = json.find_first_of(quoted ? "\"" : ",\n}", begin + quoted);
    return end == std::string::npos ? "" : json.substr(begin + quoted, end - begin - quoted);
}

}  // namespace deep_gemm::flat_json
