#include "hash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace deep_gemm {
namespace {

// Fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

Sha256& Sha256::update(std::string_view bytes) {
    total_bytes_ += bytes.size();
    while (!bytes.empty()) {
        const size_t take = std::min(bytes.size(), kBlockBytes - filled_);
        std::memcpy(block_.data() + filled_, bytes.data(), take);
        bytes.remove_prefix(take);
        filled_ += take;
        if (filled_ == kBlockBytes) {
            compress();
            filled_ = 0;
        }
    }
    return *this;
}

Sha256& Sha256::field(std::string_view bytes) {
    const uint64_t size = bytes.size();
    update({reinterpret_cast<const char*>(&size), sizeof(size)});
    return update(bytes);
}

std::string Sha256::hex() {
    const uint64_t total_bits = total_bytes_ * 8;
    update(std::string_view("\x80", 1));
    while (filled_ != kBlockBytes - 8) update(std::string_view("\0", 1));
    char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(total_bits >> (56 - 8 * i));
    update({length, 8});
    std::string digits;
    for (const uint32_t word : state_)
        for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(word >> shift) & 15];
    return digits;
}

void Sha256::compress() {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
        w[i] = 0;
        for (int j = 0; j < 4; ++j) w[i] = w[i] << 8 | block_[4 * i + j];
    }
    for (int i = 16; i < 64; ++i) {
        const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int i = 0; i < 64; ++i) {
        const uint32_t big1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const uint32_t first = h + big1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
        const uint32_t big0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const uint32_t second = big0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state_[i] += mixed[i];
}

std::string sha256(std::string_view bytes) { return Sha256().update(bytes).hex(); }

}  // namespace deep_gemm
