// ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements between shared memory and the lanes of a warp, and
// matrices of bytes, of which rows lie in shared memory and lanes have columns.
#include <cstring>

#include "../../../util/require.hpp"
#include "../core/execute.hpp"
#include "../memory/memory.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kTranspose = 1, kGeneric = 2, kFourBits = 4, kSixBits = 8;

Place row_place(Warp& w, const Instruction& in, unsigned lane, bool write) {
    const uint64_t address = read_any(w, in.a, lane) + uint64_t(in.displacement);
    const Place place = resolve(w, in.flags & kGeneric ? Space::generic : Space::shared_cta, address, 16, write, lane);
    if (place.data && !place.cta)
        report(*w.cluster, "out of bounds", "ldmatrix and stmatrix work on shared memory", &w);
    return place.cta ? place : Place{};
}

// Sixteen packed elements of 4 or 6 bits, to the low bits of a byte each.
void spread(uint32_t flags, uint16_t (&row)[8]) {
    uint8_t packed[17] = {}, bytes[16];
    std::memcpy(packed, row, sizeof row);
    const unsigned bits = flags & kFourBits ? 4 : 6;
    for (unsigned i = 0; i < 16; ++i) {
        const unsigned at = bits * i;
        bytes[i] = uint8_t((packed[at / 8] | packed[at / 8 + 1] << 8) >> at % 8 & ((1 << bits) - 1));
    }
    std::memcpy(row, bytes, sizeof row);
}

// Matrix i takes its eight row addresses from lanes 8i to 8i+7; lane l holds elements (l/4, 2(l%4)) and the next one.
Step load_matrix(Warp& w, const Instruction& in, uint32_t) {
    const auto& targets = in.extra->d;
    // What fills packed elements up to 16 bytes reaches nothing.
    const unsigned bytes = in.flags & kFourBits ? 8 : in.flags & kSixBits ? 12 : 16;
    for (unsigned i = 0; i < targets.size(); ++i) {
        uint16_t rows[8][8];
        bool bad[8] = {};
        for (unsigned r = 0; r < 8; ++r) {
            const Place place = row_place(w, in, 8 * i + r, false);
            std::memset(rows[r], 0xff, 16);
            if (!place.cta) continue;
            bad[r] = !shared_read(w, 8 * i + r, *place.cta, place.offset, bytes);
            std::memcpy(rows[r], place.data, bytes);
            if (in.flags & (kFourBits | kSixBits)) spread(in.flags, rows[r]);
        }
        uint32_t tainted = 0;
        auto* d = w.row<uint32_t>(targets[i]);
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned major = lane / 4, minor = 2 * (lane % 4);
            if (in.flags & kTranspose) {
                d[lane] = uint32_t(rows[minor + 1][major]) << 16 | rows[minor][major];
                tainted |= uint32_t(bad[minor] || bad[minor + 1]) << lane;
            } else {
                d[lane] = uint32_t(rows[major][minor + 1]) << 16 | rows[major][minor];
                tainted |= uint32_t(bad[major]) << lane;
            }
        }
        if (tainted) mark_tainted(w, targets[i], tainted);
    }
    return Step::next;
}

Step store_matrix(Warp& w, const Instruction& in, uint32_t) {
    const auto& values = in.extra->b;
    for (unsigned i = 0; i < values.size(); ++i) {
        uint16_t rows[8][8];
        bool bad[8] = {};
        const auto* value = w.row<uint32_t>(values[i]);
        const uint32_t tainted = tainted_lanes(w, values[i]);
        for (unsigned lane = 0; lane < kLanes; ++lane) {
            const unsigned major = lane / 4, minor = 2 * (lane % 4);
            const bool is_bad = tainted >> lane & 1;
            if (in.flags & kTranspose) {
                rows[minor][major] = uint16_t(value[lane]), rows[minor + 1][major] = uint16_t(value[lane] >> 16);
                bad[minor] |= is_bad, bad[minor + 1] |= is_bad;
            } else {
                rows[major][minor] = uint16_t(value[lane]), rows[major][minor + 1] = uint16_t(value[lane] >> 16);
                bad[major] |= is_bad;
            }
        }
        for (unsigned r = 0; r < 8; ++r) {
            const Place place = row_place(w, in, 8 * i + r, true);
            if (!place.cta) continue;
            shared_write(w, 8 * i + r, *place.cta, place.offset, 16, !bad[r]);
            std::memcpy(place.data, rows[r], 16);
        }
    }
    ++w.cluster->progress;
    return Step::next;
}

constexpr unsigned kRowBytes = 16;

// 16 rows of 16 bytes a matrix, their addresses from lanes 16i to 16i+15; lane l gets of columns l/4 and l/4 + 8, a
// register each, rows 4(l%4) to 4(l%4)+3.
Step load_byte_matrix(Warp& w, const Instruction& in, uint32_t) {
    constexpr unsigned kRows = 16;
    const auto& targets = in.extra->d;
    const unsigned bytes = in.flags & kFourBits ? 8 : in.flags & kSixBits ? 12 : kRowBytes;
    for (unsigned i = 0; i < targets.size() / 2; ++i) {
        uint8_t rows[kRows][kRowBytes];
        bool bad[kRows] = {};
        for (unsigned r = 0; r < kRows; ++r) {
            const unsigned lane = kRows * i + r;
            const Place place = row_place(w, in, lane, false);
            uint16_t row[8];
            std::memset(row, 0xff, sizeof row);
            if (place.cta) {
                bad[r] = !shared_read(w, lane, *place.cta, place.offset, bytes);
                std::memcpy(row, place.data, bytes);
                if (in.flags & (kFourBits | kSixBits)) spread(in.flags, row);
            }
            std::memcpy(rows[r], row, sizeof row);
        }
        for (unsigned half = 0; half < 2; ++half) {
            uint32_t tainted = 0;
            auto* d = w.row<uint32_t>(targets[2 * i + half]);
            for (unsigned lane = 0; lane < kLanes; ++lane) {
                const unsigned column = lane / 4 + 8 * half, first = 4 * (lane % 4);
                d[lane] = 0;
                for (unsigned j = 0; j < 4; ++j) {
                    d[lane] |= uint32_t(rows[first + j][column]) << 8 * j;
                    tainted |= uint32_t(bad[first + j]) << lane;
                }
            }
            if (tainted) mark_tainted(w, targets[2 * i + half], tainted);
        }
    }
    return Step::next;
}

// 8 rows of 16 bytes a matrix; byte j of lane l is column l/4 + 8(j/2) of row 2(l%4) + j%2: as mma has sums of 16x8.
Step store_byte_matrix(Warp& w, const Instruction& in, uint32_t) {
    constexpr unsigned kRows = 8;
    const auto& values = in.extra->b;
    for (unsigned i = 0; i < values.size(); ++i) {
        uint8_t rows[kRows][kRowBytes];
        bool bad[kRows] = {};
        const auto* value = w.row<uint32_t>(values[i]);
        const uint32_t tainted = tainted_lanes(w, values[i]);
        for (unsigned lane = 0; lane < kLanes; ++lane)
            for (unsigned j = 0; j < 4; ++j) {
                const unsigned row = 2 * (lane % 4) + j % 2;
                rows[row][lane / 4 + 8 * (j / 2)] = uint8_t(value[lane] >> 8 * j);
                bad[row] |= tainted >> lane & 1;
            }
        for (unsigned r = 0; r < kRows; ++r) {
            const Place place = row_place(w, in, kRows * i + r, true);
            if (!place.cta) continue;
            shared_write(w, kRows * i + r, *place.cta, place.offset, kRowBytes, !bad[r]);
            std::memcpy(place.data, rows[r], kRowBytes);
        }
    }
    ++w.cluster->progress;
    return Step::next;
}

// What elements a shape has; sets the flags of packed ones.
void decode_elements(Decoder& decoder, std::string_view shape) {
    const bool turned = decoder.out.flags & kTranspose;
    if (shape == "m8n8") {
        if (!decoder.mod("b16")) decoder.error("m8n8 has elements of .b16");
        return;
    }
    if ((shape != "m8n16") != turned) decoder.error("m16n16 and m16n8 need .trans, and m8n16 has none");
    if (shape != "m8n16" && decoder.mod("b8")) return;
    const auto packed = shape == "m16n8" ? std::string_view() : decoder.one_of({"b4x16_p64", "b6x16_p32"});
    if (packed.empty() || !decoder.mod("b8x16"))
        decoder.error(shape == "m16n8"    ? "m16n8 has elements of .b8"
                      : shape == "m16n16" ? "m16n16 needs .b8, or .b8x16 and .b4x16_p64 or .b6x16_p32"
                                          : "m8n16 needs .b8x16 and .b4x16_p64 or .b6x16_p32");
    decoder.out.flags |= packed == "b4x16_p64" ? kFourBits : kSixBits;
}

void decode_matrix(Decoder& decoder) {
    const bool is_load = decoder.mnemonic() == "ldmatrix";
    if (!decoder.mod("sync") || !decoder.mod("aligned")) decoder.error(".sync.aligned expected");
    const auto shape = is_load ? decoder.one_of({"m8n8", "m8n16", "m16n16"}) : decoder.one_of({"m8n8", "m16n8"});
    if (shape.empty()) decoder.error("shapes are m8n8, m8n16 and m16n16 of ldmatrix, m8n8 and m16n8 of stmatrix");
    const bool of_bytes = shape.starts_with("m16");
    const auto number = shape == "m16n16" ? decoder.one_of({"x1", "x2"}) : decoder.one_of({"x1", "x2", "x4"});
    if (decoder.mod("trans")) decoder.out.flags |= kTranspose;
    if (decoder.one_of({"shared::cta", "shared"}).empty()) decoder.out.flags |= kGeneric;
    decode_elements(decoder, shape);
    decoder.out.a = decoder.address(decoder.node(is_load ? 1 : 0), decoder.out.displacement);
    auto& list = is_load ? decoder.extra().d : decoder.extra().b;
    list = is_load ? decoder.dests(decoder.node(0), Type::b32) : decoder.sources(decoder.node(1), Type::b32);
    const unsigned registers = shape == "m16n16" ? 2 : 1;  // of a matrix
    if (number.empty() || list.size() != registers * size_t(number[1] - '0'))
        decoder.error(concat("a matrix of ", shape, " has ", registers, " register", registers == 1 ? "" : "s",
                             ", which is not how many there are"));
    decoder.out.gather = Gather::warp;
    if (of_bytes)
        decoder.set(is_load ? load_byte_matrix : store_byte_matrix);
    else
        decoder.set(is_load ? load_matrix : store_matrix);
}

Step transpose_matrix(Warp& w, const Instruction& in, uint32_t) {
    uint16_t rows[8][8];
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        const uint32_t value = w.row<uint32_t>(in.a)[lane];
        rows[lane / 4][2 * (lane % 4)] = uint16_t(value), rows[lane / 4][2 * (lane % 4) + 1] = uint16_t(value >> 16);
    }
    for (unsigned lane = 0; lane < kLanes; ++lane)
        w.row<uint32_t>(in.d)[lane] =
            uint32_t(rows[2 * (lane % 4) + 1][lane / 4]) << 16 | rows[2 * (lane % 4)][lane / 4];
    return Step::next;
}
void decode_movmatrix(Decoder& decoder) {
    decoder.ignore({"sync", "aligned", "m8n8", "trans", "b16"});
    decoder.out.d = decoder.dest(0, Type::b32);
    decoder.out.a = decoder.source(1, Type::b32);
    decoder.out.gather = Gather::warp;
    decoder.set(transpose_matrix);
}

}  // namespace

void add_matrix(DecodeTable& table) {
    table["ldmatrix"] = table["stmatrix"] = decode_matrix;
    table["movmatrix"] = decode_movmatrix;
}

}  // namespace deep_gemm::simulator
