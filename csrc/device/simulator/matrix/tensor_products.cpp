// tcgen05.mma: products of operands in shared memory (A also in tensor memory) into tensor memory, by one block or a
// pair.
#include "tensor_products.hpp"

#include <algorithm>

#include "../../../util/require.hpp"

namespace deep_gemm::simulator {

namespace {

constexpr uint32_t kPair = 8, kTensorA = 16;
constexpr unsigned kBlocksOf = 5;  // blocks of K with a scale of their own in one instruction, 1, 2 or 4
constexpr uint32_t kKindMask = 7;

struct Product {
    const Instruction* instruction;
    TensorKind kind;
    bool pair, accumulate;
    unsigned blocks;
    int scale_d;
    ProductShape shape;
    OperandLayout a, b;
    TensorPlace a_tensor, d, scale_a, scale_b;
    bool a_in_tensor;
    uint32_t disabled[8];  // lanes of D that are not written, a bit each; of a pair's second block behind the first's
    std::vector<Cta*> ctas;
    TensorAccess access;
};

/// Where an element of a block's part of D stands.
struct Placing {
    unsigned rows;  // of M in this block
    bool split;     // a pair with M = 128: the second half of N stands in lanes 64 and up
    bool quarters;  // one block with M = 64: 16 lanes of each quarter
    unsigned columns;

    explicit Placing(const Product& p)
        : rows(p.shape.m / (p.pair ? 2 : 1)),
          split(p.pair && p.shape.m == 128),
          quarters(!p.pair && p.shape.m == 64),
          columns(split ? p.shape.n / 2 : p.shape.n) {}
    unsigned lane(unsigned row, unsigned column) const {
        if (split) return row + 64 * (column / columns);
        return quarters ? row / 16 * 32 + row % 16 : row;
    }
    std::vector<TensorArea> areas(TensorPlace at) const {
        if (!quarters) return {{at.lane, kTensorLanes - at.lane, at.column, columns}};
        std::vector<TensorArea> all;
        for (unsigned quarter = 0; quarter < 4; ++quarter)
            all.push_back({at.lane + 32 * quarter, 16, at.column, columns});
        return all;
    }
};

Elements elements_of(TensorKind kind, Type type) {
    // Beside 8-bit elements, smaller ones stand 16 in 16 bytes too.
    const bool unpacked = kind == TensorKind::f8f6f4 || kind == TensorKind::mxf8f6f4;
    return unpacked ? Elements(type, 16) : Elements(type);
}

void negate(Matrix& matrix, unsigned first, unsigned rows) {
    for (unsigned i = first * kMatrixK; i < (first + rows) * kMatrixK; ++i) matrix.values[i] = -matrix.values[i];
}

// A in tensor memory: a lane a row, 32 bytes of K in eight columns.
void fetch_from_tensor(const Product& p, Cta& cta, unsigned rows, Matrix& out) {
    const Placing placing(p);
    TensorMemory& memory = tensor_memory(cta);
    const Elements elements = elements_of(p.kind, p.shape.a);
    for (unsigned row = 0; row < rows; ++row) {
        const unsigned lane = p.a_tensor.lane + placing.lane(row, 0);
        tensor_read(p.access, cta, {lane, 1, p.a_tensor.column, 8});
        char bytes[32];
        for (unsigned i = 0; i < 8; ++i) {
            std::memcpy(bytes + 4 * i, &memory.cell(lane, p.a_tensor.column + i), 4);
            out.bad[row] |= !memory.good(lane, p.a_tensor.column + i);
        }
        for (unsigned half = 0; half < 2; ++half)
            convert_elements(elements.type, bytes + 16 * half, elements.per_chunk,
                             out.values + row * kMatrixK + half * elements.per_chunk);
    }
}

float scale_value(Type type, uint8_t bits) {
    return type == Type::e4m3 ? e4m3_to_float(bits & 0x7f) : e8m0_to_float(bits);
}

/// Scales of `rows` rows, by row and block. Row r of 128 stands in lane r % 32, and again 32, 64 and 96 lanes further.
struct Scales {
    float values[256][4];
    void fetch(const Product& p, Cta& cta, TensorPlace at, unsigned rows, unsigned id, Matrix& bad) {
        TensorMemory& memory = tensor_memory(cta);
        tensor_read(p.access, cta, {0, kTensorLanes, at.column, (rows + 31) / 32});
        bool differ = false;
        for (unsigned row = 0; row < rows; ++row) {
            const unsigned lane = row % 32, column = at.column + row / 32;
            const uint32_t word = memory.cell(lane, column);
            for (unsigned quarter = 1; quarter < 4; ++quarter)
                differ |= memory.cell(lane + 32 * quarter, column) != word;
            bad.bad[row] |= !memory.good(lane, column);
            for (unsigned block = 0; block < p.blocks; ++block)
                values[row][block] = scale_value(p.shape.scale, uint8_t(word >> 8 * ((id + block) & 3)));
        }
        if (differ)
            report(*p.access.cluster, "tensor memory",
                   concat("scales in columns ", at.column, " and up of block ", cta.rank,
                          " differ between the four quarters of lanes"),
                   p.access.warp, p.instruction);
    }
};

void add_scaled(const Matrix& a, const Matrix& b, const Scales& scale_a, const Scales& scale_b, const Product& p,
                unsigned rows, unsigned k, float* sums) {
    static thread_local float part[128 * 256];
    const unsigned n = p.shape.n, block_k = k / p.blocks;
    std::fill_n(sums, rows * n, 0.0f);
    for (unsigned block = 0; block < p.blocks; ++block) {
        multiply(a.values + block * block_k, b.values + block * block_k, rows, n, block_k, part);
        for (unsigned row = 0; row < rows; ++row)
            for (unsigned column = 0; column < n; ++column)
                sums[row * n + column] +=
                    float(double(part[row * n + column]) * scale_a.values[row][block] * scale_b.values[column][block]);
    }
}

uint32_t add_to(const Product& p, uint32_t d, float sum) {
    if (p.shape.d == Type::s32)
        return uint32_t(add_integers(p.accumulate ? int32_t(d) : 0, int32_t(sum), p.shape.saturate));
    const float scale = p.scale_d ? 1.0f / float(1u << p.scale_d) : 1.0f;
    if (p.shape.d == Type::f16) return float_to_half((p.accumulate ? half_to_float(uint16_t(d)) * scale : 0.0f) + sum);
    return __builtin_bit_cast(uint32_t, (p.accumulate ? __builtin_bit_cast(float, d) * scale : 0.0f) + sum);
}

// Into the part of D that this block holds.
void add_sums(const Product& p, Cta& cta, const Matrix& a, const Matrix& b, const float* sums) {
    const Placing placing(p);
    TensorMemory& memory = tensor_memory(cta);
    for (const TensorArea& area : placing.areas(p.d)) tensor_write(p.access, cta, area);
    const unsigned n = p.shape.n;
    const uint32_t* disabled = p.disabled + (p.pair && &cta == p.ctas[1] ? 4 : 0);
    const bool plain = p.shape.d == Type::f32 && p.scale_d == 0;  // most are, and this is much of a run's time
    const bool any_bad = std::any_of(b.bad, b.bad + n, [](bool bad) { return bad; });
    for (unsigned row = 0; row < placing.rows; ++row)
        for (unsigned first = 0; first < n; first += placing.columns) {  // columns that stand together in one lane
            const unsigned lane = p.d.lane + placing.lane(row, first);
            if (disabled[lane / 32 % 4] >> lane % 32 & 1) continue;
            uint32_t* d = &memory.cell(lane, p.d.column);
            uint8_t* good = &memory.good(lane, p.d.column);
            const float* from = sums + row * n + first;
            if (plain)
                for (unsigned i = 0; i < placing.columns; ++i)
                    d[i] = std::bit_cast<uint32_t>((p.accumulate ? std::bit_cast<float>(d[i]) : 0.0f) + from[i]);
            else
                for (unsigned i = 0; i < placing.columns; ++i) d[i] = add_to(p, d[i], from[i]);
            for (unsigned i = 0; i < placing.columns; ++i)
                good[i] = (!p.accumulate || good[i]) && !a.bad[row] && !(any_bad && b.bad[first + i]);
        }
}

void execute(const Product& p) {
    static thread_local Matrix a, b;
    static thread_local Scales scale_a, scale_b;
    static thread_local float sums[128 * 256];
    const unsigned parts = unsigned(p.ctas.size()), rows = p.shape.m / parts, columns = p.shape.n / parts;
    const Elements of_a = elements_of(p.kind, p.shape.a), of_b = elements_of(p.kind, p.shape.b);
    const unsigned k = 2 * of_a.per_chunk;
    AsyncAccess reading{p.access.cluster, &p.access.at,  p.access.agent, p.access.tick,
                        p.instruction,    p.access.warp, "tcgen05.mma"};
    b.clear(p.shape.n);
    for (unsigned part = 0; part < parts; ++part)  // each block holds its half of B's rows
        fetch_operand(reading, *p.ctas[part], p.b, columns, p.shape.mn_major_b, of_b, b, part * columns);
    if (p.shape.negate_b) negate(b, 0, p.shape.n);
    for (Cta* cta : p.ctas) {
        a.clear(rows);
        if (p.a_in_tensor)
            fetch_from_tensor(p, *cta, rows, a);
        else
            fetch_operand(reading, *cta, p.a, rows, p.shape.mn_major_a, of_a, a);
        if (p.shape.negate_a) negate(a, 0, rows);
        if (has_block_scales(p.kind)) {
            scale_a.fetch(p, *cta, p.scale_a, rows, p.shape.scale_id_a, a);
            scale_b.fetch(p, *cta, p.scale_b, p.shape.n, p.shape.scale_id_b, b);
            add_scaled(a, b, scale_a, scale_b, p, rows, k, sums);
        } else {
            multiply(a.values, b.values, rows, p.shape.n, k, sums);
        }
        add_sums(p, *cta, a, b, sums);
    }
    ++p.access.cluster->statistics.matrix_multiplies;
    p.access.cluster->statistics.multiply_adds += uint64_t(p.shape.m) * p.shape.n * k;
}

bool all_allocated(const Product& p) {
    const Placing placing(p);
    for (Cta* cta : p.ctas) {
        for (const TensorArea& area : placing.areas(p.d))
            if (!check_area(p.access, *cta, area)) return false;
        if (p.a_in_tensor)
            for (const TensorArea& area : placing.areas(p.a_tensor))
                if (!check_area(p.access, *cta, {area.lane, area.lanes, area.column, 8})) return false;
        if (!has_block_scales(p.kind)) continue;
        const unsigned rows = p.shape.m / unsigned(p.ctas.size());
        if (!check_area(p.access, *cta, {0, kTensorLanes, p.scale_a.column, (rows + 31) / 32}) ||
            !check_area(p.access, *cta, {0, kTensorLanes, p.scale_b.column, (p.shape.n + 31) / 32}))
            return false;
    }
    return true;
}

bool check_scale_ids(Warp& w, const Product& p) {
    const auto fits = [&](unsigned id) { return p.blocks == 1 || id + p.blocks <= 4 ? id % p.blocks == 0 : false; };
    if (!has_block_scales(p.kind) || (fits(p.shape.scale_id_a) && fits(p.shape.scale_id_b))) return true;
    report(*w.cluster, "descriptor",
           concat("scale ids ", p.shape.scale_id_a, " and ", p.shape.scale_id_b, " with ", p.blocks,
                  " scales a K step: ids 0 and 2 serve two, 0 serves four"),
           &w);
    return false;
}

void issue(Warp& w, const Instruction& in, unsigned lane) {
    TensorWork& work = tensor_work(w);
    const Extra& extra = *in.extra;
    const auto address = [&](const Operand& operand, int displacement) {
        return tensor_place(uint32_t(read_any(w, operand, lane)) + uint32_t(displacement));
    };
    Product p{};
    p.instruction = &in;
    p.kind = TensorKind(in.flags & kKindMask);
    p.pair = in.flags & kPair;
    p.a_in_tensor = in.flags & kTensorA;
    p.blocks = in.flags >> kBlocksOf & 7;
    p.accumulate = w.predicate(in.x) >> lane & 1;
    p.scale_d = extra.values[4];
    p.ctas = group_ctas(w, p.pair);
    if (p.ctas.empty() || !decode_descriptor(w, p.kind, p.pair, w.row<uint32_t>(in.c)[lane], p.shape)) return;
    p.d = address(in.d, extra.values[0]);
    if (p.a_in_tensor)
        p.a_tensor = address(in.a, extra.values[1]);
    else if (!tensor_layout(w, w.row<uint64_t>(in.a)[lane], p.a))
        return;
    if (!tensor_layout(w, w.row<uint64_t>(in.b)[lane], p.b)) return;
    for (size_t i = 0; i < extra.c.size(); ++i) p.disabled[i] = uint32_t(read_any(w, extra.c[i], lane));
    if (has_block_scales(p.kind)) {
        p.scale_a = address(extra.a[0], extra.values[2]);
        p.scale_b = address(extra.b[0], extra.values[3]);
    }
    p.access = tensor_access(w, in, 1u << lane, work.products, count_issued(w, lane), "tcgen05.mma");
    tick(w);  // what the warp does from here on may overtake the product
    if (!check_scale_ids(w, p) || !all_allocated(p)) return;
    for (Cta* cta : p.ctas) cta->tensor_users[p.access.agent] = p.access.tick;
    const TensorAccess access = p.access;
    queue_tensor_product(w, in, access, [p = std::move(p)] { execute(p); });
}

Step mma(Warp& w, const Instruction& in, uint32_t lanes) {
    if (lanes & (lanes - 1))
        report(*w.cluster, "tensor memory",
               concat(std::popcount(lanes), " lanes issue one tcgen05.mma each, where one should"), &w);
    for (uint32_t left = lanes; left; left &= left - 1) issue(w, in, unsigned(std::countr_zero(left)));
    return Step::next;
}

unsigned take_blocks(Decoder& decoder, TensorKind kind) {
    const auto vector = decoder.one_of({"scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block32", "block16"});
    const unsigned usual = kind == TensorKind::mxf8f6f4 ? 1 : 2;
    if (vector.empty()) {
        if (kind == TensorKind::mxf4nvf4) decoder.error("this kind needs .scale_vec or a block size");
        return usual;
    }
    const unsigned blocks = vector == "block32" ? usual : vector == "block16" ? 4 : unsigned(vector[11] - '0');
    if (blocks != usual && !(kind == TensorKind::mxf4nvf4 && blocks == 4))
        decoder.error("this kind has other blocks of scales");
    return blocks;
}

}  // namespace

void decode_tensor_mma(Decoder& decoder) {
    static constexpr std::string_view kKinds[] = {"kind::f16",      "kind::tf32", "kind::f8f6f4",  "kind::i8",
                                                  "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"};
    Instruction& out = decoder.out;
    Extra& extra = decoder.extra();
    const bool pair = take_pair(decoder);
    unsigned kind = 0;
    while (kind < std::size(kKinds) && !decoder.mod(kKinds[kind])) ++kind;
    if (kind == std::size(kKinds))
        decoder
            .error("tcgen05.mma of this kind is not modelled: f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4 and mxf4nvf4 are");
    const bool scaled = has_block_scales(TensorKind(kind));
    if (decoder.mod("block_scale") != scaled) decoder.error("block_scale belongs to the mx kinds, and to all of them");
    const unsigned blocks = scaled ? take_blocks(decoder, TensorKind(kind)) : 1;
    decoder.ignore({"collector::a::fill", "collector::a::discard"});
    const auto tensor_operand = [&](size_t index, int& displacement) {
        int64_t value;
        const Operand operand = decoder.address(decoder.node(index), value);
        displacement = int(value);
        return operand;
    };
    out.d = tensor_operand(0, extra.values[0]);
    const bool tensor_a = decoder.is_address(1);
    if (tensor_a)
        out.a = tensor_operand(1, extra.values[1]);
    else
        out.a = decoder.source(1, Type::b64);
    out.b = decoder.source(2, Type::b64);
    out.c = decoder.source(3, Type::b32);
    size_t next = 4;
    if (scaled) {
        extra.a.push_back(tensor_operand(next++, extra.values[2]));
        extra.b.push_back(tensor_operand(next++, extra.values[3]));
    } else if (decoder.is_vector(next)) {
        extra.c = decoder.sources(decoder.node(next++), Type::b32);
        const size_t words = pair ? 8 : 4;
        if (extra.c.size() != words)
            decoder.error(concat("disable-output-lane must have ", words, " registers, got ", extra.c.size()));
    }
    out.x = decoder.predicate(next++);
    if (!scaled && decoder.count() > next) extra.values[4] = int(decoder.constant(next++));
    out.flags = kind | (pair ? kPair : 0) | (tensor_a ? kTensorA : 0) | blocks << kBlocksOf;
    decoder.set(mma);
}

}  // namespace deep_gemm::simulator
