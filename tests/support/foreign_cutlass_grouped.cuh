// A grouped GEMM of CUTLASS 3, whose groups' sizes lie in memory and whose tensor maps the kernel changes: what
// foreign_cutlass.cuh is for one product. foreign_grouped.py compiles it and reads what it prints.
#pragma once

#include "foreign_cutlass.cuh"

#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <vector>

using GroupSizes = cute::Shape<int, int, int>;

template <class Traits>
struct BuiltGrouped {
    using Row = cutlass::layout::RowMajor;
    using Column = cutlass::layout::ColumnMajor;
    using C = typename Traits::C;
    using D = typename Traits::D;
    static constexpr int kAlignC = 128 / cutlass::sizeof_bits<C>::value;
    static constexpr int kAlignD = 128 / cutlass::sizeof_bits<D>::value;
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        typename Traits::Arch, typename Traits::Operator, typename Traits::Tile, typename Traits::Cluster,
        cutlass::epilogue::collective::EpilogueTileAuto, float, float, C, Row*, kAlignC, D, Row*, kAlignD,
        typename Traits::EpilogueSchedule, typename Traits::Fusion>::CollectiveOp;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        typename Traits::Arch, typename Traits::Operator, typename Traits::A, Row*, Traits::kAlignA, typename Traits::B,
        Column*, Traits::kAlignB, float, typename Traits::Tile, typename Traits::Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
        typename Traits::Schedule>::CollectiveOp;
    using Kernel =
        cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<GroupSizes>, Mainloop, Epilogue>;
};

/// What the kernel reads of each group, as it will lie in memory from `address` on.
class Tables {
public:
    explicit Tables(uint64_t address) : address_(address) {}
    template <class T>
    T* add(const std::vector<T>& rows) {
        while (bytes_.size() % 16) bytes_.push_back(0);
        const size_t start = bytes_.size();
        bytes_.resize(start + rows.size() * sizeof(T));
        std::memcpy(bytes_.data() + start, static_cast<const void*>(rows.data()), rows.size() * sizeof(T));
        return reinterpret_cast<T*>(address_ + start);
    }
    const std::vector<uint8_t>& bytes() const { return bytes_; }

private:
    uint64_t address_;
    std::vector<uint8_t> bytes_;
};

inline void print_bytes(const char* key, const void* data, size_t bytes) {
    std::printf("%s ", key);
    for (size_t i = 0; i < bytes; ++i) std::printf("%02x", static_cast<const uint8_t*>(data)[i]);
    std::printf("\n");
}

/// Arguments: SMs, addresses of a workspace, of the tables and of what D is multiplied by; then of each group M, N, K,
/// addresses of A, B, their scales, C, D, D's scales, and alpha.
template <class Traits>
int describe_grouped(int count, char** given) {
    using Kernel = typename BuiltGrouped<Traits>::Kernel;
    using Config = typename Kernel::CollectiveMainloop::Sm1xxBlkScaledConfig;
    using Scale = typename Kernel::CollectiveMainloop::ElementSF;
    std::vector<uint64_t> x;
    for (int i = 1; i < count; ++i) x.push_back(std::strtoull(given[i], nullptr, 0));
    constexpr size_t kFirst = 4, kOfGroup = 11;
    std::vector<GroupSizes> sizes;
    std::vector<uint64_t> addresses[8];
    std::vector<typename Kernel::InternalStrideA> strides_a;
    std::vector<typename Kernel::InternalStrideB> strides_b;
    std::vector<typename Kernel::InternalStrideC> strides_c;
    std::vector<typename Kernel::InternalStrideD> strides_d;
    std::vector<typename Kernel::CollectiveMainloop::InternalLayoutSFA> layouts_a;
    std::vector<typename Kernel::CollectiveMainloop::InternalLayoutSFB> layouts_b;
    for (size_t g = kFirst; g + kOfGroup <= x.size(); g += kOfGroup) {
        const int m = int(x[g]), n = int(x[g + 1]), k = int(x[g + 2]);
        sizes.push_back({m, n, k});
        for (int i = 0; i < 8; ++i) addresses[i].push_back(x[g + 3 + i]);
        strides_a.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideA{}, {m, k, 1}));
        strides_b.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideB{}, {n, k, 1}));
        strides_c.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideC{}, {m, n, 1}));
        strides_d.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideD{}, {m, n, 1}));
        layouts_a.push_back(Config::tile_atom_to_shape_SFA(cute::make_shape(m, n, k, 1)));
        layouts_b.push_back(Config::tile_atom_to_shape_SFB(cute::make_shape(m, n, k, 1)));
    }

    Tables tables(x[2]);
    typename Kernel::Arguments arguments{};
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    arguments.problem_shape = {int(sizes.size()), tables.add(sizes), sizes.data()};
    auto& main = arguments.mainloop;
    auto& epilogue = arguments.epilogue;
    const auto at = [&](auto& pointer, const std::vector<uint64_t>& rows) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(tables.add(rows));
    };
    at(main.ptr_A, addresses[0]), at(main.ptr_B, addresses[1]);
    at(main.ptr_SFA, addresses[2]), at(main.ptr_SFB, addresses[3]);
    at(epilogue.ptr_C, addresses[4]), at(epilogue.ptr_D, addresses[5]);
    main.dA = tables.add(strides_a), main.dB = tables.add(strides_b);
    main.layout_SFA = tables.add(layouts_a), main.layout_SFB = tables.add(layouts_b);
    epilogue.dC = tables.add(strides_c), epilogue.dD = tables.add(strides_d);
    decltype(epilogue.thread) thread{};
    thread.alpha = 0, thread.beta = Traits::kBeta;
    at(thread.block_scale_factor_ptr, addresses[6]), at(thread.alpha_ptr_array, addresses[7]);
    thread.dAlpha = {cute::_0{}, cute::_0{}, 1};
    thread.norm_constant_ptr = reinterpret_cast<const float*>(x[3]);
    epilogue.thread = thread;
    arguments.hw_info.sm_count = int(x[0]);
    arguments.hw_info.max_active_clusters = int(x[0]);
    static_assert(sizeof(Scale) == 1);

    if (!Kernel::can_implement(arguments)) return std::fprintf(stderr, "CUTLASS cannot serve this problem\n"), 1;
    const auto params = Kernel::to_underlying_arguments(arguments, reinterpret_cast<void*>(x[1]));
    const dim3 grid = Kernel::get_grid_shape(params), block = Kernel::get_block_shape();
    std::printf("workspace %zu\n", size_t(Kernel::get_workspace_size(arguments)));
    std::printf("grid %u %u %u\nblock %u %u %u\ncluster 1 1 1\nsmem %d\n", grid.x, grid.y, grid.z, block.x, block.y,
                block.z, int(Kernel::SharedStorageSize));
    print_bytes("params", &params, sizeof(params));
    print_bytes("tables", tables.bytes().data(), tables.bytes().size());
    return reinterpret_cast<const void*>(&cutlass::device_kernel<Kernel>) == nullptr;
}
