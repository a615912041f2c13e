// A GEMM kernel of CUTLASS 3 as the simulator is given it: the program prints how it is launched and the bytes of its
// parameters, in which numbered marks stand for the tensor maps. foreign_cutlass.py compiles it, reads what it prints
// and encodes the tensor maps. Addresses are numbers here: nothing is read or launched.
#pragma once

#include <cutlass/cutlass.h>
#include <cutlass/device_kernel.h>
#include <cute/tensor.hpp>  // first: mma_traits_sm120.hpp calls cute::transform by its full name, which must be known there

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>
#include <cutlass/util/packed_stride.hpp>

/// The driver's function, which CUTLASS calls: the first word is a mark, the third the number of the line printed. (The
/// second one CUTLASS changes.)
extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                           const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                           const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                           CUtensorMapFloatOOBfill) {
    static uint64_t count = 0;
    const uint64_t words[3] = {0x666f7265696d6170, 0, count};
    std::memset(map, 0, sizeof(*map));
    std::memcpy(map, words, sizeof(words));
    std::printf("map %d %llu %d %d", int(type), (unsigned long long)address, int(interleave), int(swizzle));
    for (unsigned i = 0; i < rank; ++i)
        std::printf(" %llu,%llu,%u,%u", (unsigned long long)sizes[i], (unsigned long long)(i ? strides[i - 1] : 0),
                    box[i], steps[i]);
    std::printf("\n");
    ++count;
    return CUDA_SUCCESS;
}

template <class Traits>
struct Built {
    using Row = cutlass::layout::RowMajor;
    using Column = cutlass::layout::ColumnMajor;
    using C = typename Traits::C;
    using D = typename Traits::D;
    static constexpr int kAlignC = 128 / cutlass::sizeof_bits<C>::value;
    static constexpr int kAlignD = 128 / cutlass::sizeof_bits<D>::value;
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        typename Traits::Arch, typename Traits::Operator, typename Traits::Tile, typename Traits::Cluster,
        cutlass::epilogue::collective::EpilogueTileAuto, float, float, C, Row, kAlignC, D, Row, kAlignD,
        typename Traits::EpilogueSchedule, typename Traits::Fusion>::CollectiveOp;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        typename Traits::Arch, typename Traits::Operator, typename Traits::A, Row, Traits::kAlignA, typename Traits::B,
        Column, Traits::kAlignB, float, typename Traits::Tile, typename Traits::Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
        typename Traits::Schedule>::CollectiveOp;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                        typename Traits::Scheduler>;
};

/// Arguments: M, N, K, SMs, addresses of A, B, D, a workspace, scales of A, of B and of D, and what D is multiplied by.
template <class Traits>
int describe(int count, char** given) {
    using Kernel = typename Built<Traits>::Kernel;
    uint64_t x[12] = {};
    for (int i = 1; i < count && i <= 12; ++i) x[i - 1] = std::strtoull(given[i], nullptr, 0);
    const int m = int(x[0]), n = int(x[1]), k = int(x[2]);
    const auto at = [&](auto& pointer, int i) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(x[i]);
    };

    typename Kernel::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k, 1}};
    auto& main = arguments.mainloop;
    at(main.ptr_A, 4), at(main.ptr_B, 5), at(arguments.epilogue.ptr_C, 6), at(arguments.epilogue.ptr_D, 6);
    main.dA = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, cute::make_shape(m, k, 1));
    main.dB = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, cute::make_shape(n, k, 1));
    arguments.epilogue.dC = cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, cute::make_shape(m, n, 1));
    arguments.epilogue.dD = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, cute::make_shape(m, n, 1));
    arguments.epilogue.thread.alpha = 1.0f;
    arguments.epilogue.thread.beta = 0.0f;
    if constexpr (requires { main.ptr_SFA; }) {
        using Config = typename Kernel::CollectiveMainloop::Sm1xxBlkScaledConfig;
        at(main.ptr_SFA, 8), at(main.ptr_SFB, 9);
        main.layout_SFA = Config::tile_atom_to_shape_SFA(cute::make_shape(m, n, k, 1));
        main.layout_SFB = Config::tile_atom_to_shape_SFB(cute::make_shape(m, n, k, 1));
    }
    if constexpr (requires { arguments.epilogue.thread.norm_constant_ptr; })
        at(arguments.epilogue.thread.block_scale_factor_ptr, 10), at(arguments.epilogue.thread.norm_constant_ptr, 11);
    arguments.hw_info.sm_count = int(x[3]);
    arguments.hw_info.max_active_clusters = int(x[3]);
    Traits::change(arguments);

    if (!Kernel::can_implement(arguments)) return std::fprintf(stderr, "CUTLASS cannot serve this problem\n"), 1;
    const auto params = Kernel::to_underlying_arguments(arguments, reinterpret_cast<void*>(x[7]));
    const dim3 grid = Kernel::get_grid_shape(params), block = Kernel::get_block_shape();
    std::printf("workspace %zu\n", size_t(Kernel::get_workspace_size(arguments)));
    std::printf("grid %u %u %u\nblock %u %u %u\n", grid.x, grid.y, grid.z, block.x, block.y, block.z);
    std::printf("cluster %d %d %d\nsmem %d\nparams ", int(cute::size<0>(typename Traits::Cluster{})),
                int(cute::size<1>(typename Traits::Cluster{})), int(cute::size<2>(typename Traits::Cluster{})),
                int(Kernel::SharedStorageSize));
    for (size_t i = 0; i < sizeof(params); ++i) std::printf("%02x", reinterpret_cast<const uint8_t*>(&params)[i]);
    std::printf("\n");
    return reinterpret_cast<const void*>(&cutlass::device_kernel<Kernel>) == nullptr;
}
