// SHA-256 (FIPS 180-4), for cache keys and for telling whether a cached file is intact.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deep_gemm {

class Sha256 {
public:
    Sha256& update(std::string_view bytes);

    /// Adds a field with its length in front, so that ("ab", "c") and ("a", "bc") differ.
    Sha256& field(std::string_view bytes);

    /// The digest as 64 hexadecimal digits. Ends the computation: nothing may be added afterwards.
    std::string hex();

private:
    static constexpr size_t kBlockBytes = 64;

    void compress();

    // Fractional parts of the square roots of the first 8 primes.
    std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<uint8_t, kBlockBytes> block_{};
    size_t filled_ = 0;
    uint64_t total_bytes_ = 0;
};

std::string sha256(std::string_view bytes);

}  // namespace deep_gemm
