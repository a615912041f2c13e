// PTX text into tokens.
#include <cctype>

#include "../../../util/require.hpp"
#include "parser.hpp"

namespace deep_gemm::simulator {

namespace {
bool word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }
bool word_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }
}  // namespace

std::vector<Token> tokenize(std::string_view text) {
    std::vector<Token> tokens;
    tokens.reserve(text.size() / 4);
    uint32_t line = 1;
    size_t i = 0;
    const auto push = [&](Token::Kind kind, size_t start) {
        tokens.push_back({kind, text.substr(start, i - start), line});
    };
    while (i < text.size()) {
        const char c = text[i];
        if (c == '\n') {
            ++line, ++i;
        } else if (c == '\0' || std::isspace(static_cast<unsigned char>(c))) {
            ++i;
        } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
            while (i < text.size() && text[i] != '\n') ++i;
        } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '*') {
            for (i += 2; i + 1 < text.size() && !(text[i] == '*' && text[i + 1] == '/'); ++i) line += text[i] == '\n';
            i += 2;
        } else if (c == '"') {
            const size_t start = i++;
            while (i < text.size() && text[i] != '"') ++i;
            ++i;
            push(Token::Kind::string, start);
        } else if (word_start(c)) {
            const size_t start = i++;
            while (i < text.size() && word_part(text[i])) ++i;
            // %tid.x is one name
            if (c == '%' && i + 1 < text.size() && text[i] == '.' && text[i + 1] >= 'w' && text[i + 1] <= 'z' &&
                (i + 2 >= text.size() || !word_part(text[i + 2])))
                i += 2;
            push(Token::Kind::word, start);
        } else if (c == '.' && i + 1 < text.size() && (word_part(text[i + 1]))) {
            const size_t start = ++i;
            while (i < text.size() &&
                   (word_part(text[i]) || (text[i] == ':' && i + 1 < text.size() && text[i + 1] == ':') ||
                    (text[i] == ':' && text[i - 1] == ':')))
                ++i;
            push(Token::Kind::modifier, start);
        } else if (std::isdigit(static_cast<unsigned char>(c))) {
            const size_t start = i++;
            while (i < text.size() &&
                   (std::isalnum(static_cast<unsigned char>(text[i])) ||
                    (text[i] == '.' && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i + 1])))))
                ++i;
            push(Token::Kind::number, start);
        } else {
            const size_t start = i++;
            push(Token::Kind::symbol, start);
        }
    }
    tokens.push_back({Token::Kind::end, {}, line});
    return tokens;
}

}  // namespace deep_gemm::simulator
