"""K groups whose sizes on the device are other ones than the host knows of."""

from __future__ import annotations

import pytest
import torch
from inputs import GuardedOutput, Operand
from k_grouped_inputs import LAYOUTS, call, groups, in_psum_layout, stacked

import deep_gemm
from deep_gemm._extension import C


@pytest.mark.gpu
def test_the_device_sizes_count(cuda) -> None:
    """A captured graph is replayed with sizes that the host did not know."""
    x = groups(40, 72, [128, 16, 256], cuda)
    out = GuardedOutput(x.shape, torch.float32, cuda)
    call("tn")(stacked(x.a, "tn"), stacked(x.b, "tn"), out.tensor, [16, 256, 128], x.sizes())
    out.check()
    x.check(out.tensor)


class TestCountsThatContradict:
    """What the device says of the groups leads nowhere that the host does not know of."""

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("sizes", [[48, 128], [128, 2**31 - 1], [128, -48], [0, 0]], ids=str)
    def test_refused_on_the_cpu(self, layout, sizes) -> None:
        x = groups(40, 72, [128, 48], torch.device("cpu"))
        out = GuardedOutput(x.shape, torch.float32, x.device)
        group = 0 if sizes[0] != 128 else 1
        said = rf"grouped_layout\[{group}\] is {sizes[group]} but ks_cpu\[{group}\] is {x.ks[group]}"
        with pytest.raises(ValueError, match=said):
            call(layout)(
                stacked(x.a, layout), stacked(x.b, layout), out.tensor, x.ks, torch.tensor(sizes, dtype=torch.int32)
            )
        out.assert_untouched()

    def run_psum(self, ends: list[int], host_sizes: bool, message: str, blocks: int = 2) -> None:
        x = groups(40, 72, [128, 48], torch.device("cpu"))
        a, b, _ = in_psum_layout(x, 128)
        a, b = Operand(a.data, a.scales[:blocks]), Operand(b.data, b.scales[:blocks])
        out = GuardedOutput(x.shape, torch.float32, x.device)
        layout = torch.tensor(ends, dtype=torch.int32)
        with pytest.raises(ValueError, match=message):
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
                a, b, out.tensor, x.ks if host_sizes else None, layout, use_psum_layout=True
            )
        out.assert_untouched()

    @pytest.mark.parametrize("host_sizes", [True, False], ids=["ks_given", "ks_on_the_device_only"])
    @pytest.mark.parametrize(
        ("ends", "message"),
        [
            ([128, 2**31 - 1], r"grouped_layout\[1\] says that the group ends at 2147483647, but a has only 256 rows"),
            ([128, 100], r"grouped_layout\[1\] says that the group ends at 100, but the one before it ends at 128"),
            ([-16, 176], r"grouped_layout\[0\] says that the group ends at -16, but the one before it ends at 0"),
        ],
        ids=str,
    )
    def test_ends_that_lead_nowhere_are_refused_on_the_cpu(self, ends, message, host_sizes) -> None:
        self.run_psum(ends, host_sizes, message)

    @pytest.mark.parametrize(("ends", "k"), [([256, 256], 256), ([129, 256], 129)], ids=str)
    def test_ends_of_other_sizes_are_refused_on_the_cpu(self, ends, k) -> None:
        self.run_psum(ends, True, rf"grouped_layout\[0\] gives the group K={k} but ks_cpu\[0\] is 128")

    def test_ends_that_need_more_scales_are_refused_on_the_cpu(self) -> None:
        self.run_psum([128, 176], False, r"a's scales must have one row for each 128 of a group's K, 2 .* got 1", 1)

    @pytest.mark.parametrize("psum_alignment", [0, 64])
    @pytest.mark.parametrize(
        "values",
        [[-5, 2**31 - 1, 7], [2**31 - 1] * 70, [100, 2**31 - 1, 0, 500], [1000, 0] * 40, [-(2**31)] * 3],
        ids=str,
    )
    def test_kernels_cut_them(self, values, psum_alignment) -> None:
        """As every kernel of K groups finds them: within 500 elements of K, and five blocks."""
        device = torch.device("cpu")
        found = torch.full((len(values), 4), -1, dtype=torch.int32)
        C.jit_launch(
            "visit_k_groups_kernel",
            VISIT,
            1,
            32,
            1,
            0,
            False,
            [torch.tensor(values, dtype=torch.int32, device=device), found],
            [len(values), psum_alignment, 500, 5],
        )
        begin, k, first_block, blocks = found.long().T
        assert (found >= 0).all()
        assert (begin + k <= 500).all()
        assert (first_block + blocks <= 5).all()

    @pytest.mark.parametrize("psum_alignment", [0, 64])
    @pytest.mark.parametrize("values", [[2**31 - 1] * 3, [200, 2**31 - 1, 200], [-7, 100, 300]], ids=str)
    def test_the_transposing_kernel_stays_inside(self, device, values, psum_alignment) -> None:
        k, mn, blocks = 300, 40, 3
        source = torch.ones((1, k, mn), dtype=torch.uint8, device=device)
        room = torch.full((mn * blocks * 128 + 64,), 0xA5, dtype=torch.uint8, device=device)
        target = room[: mn * blocks * 128].view(1, mn, blocks * 128)
        C.transpose(source, target, torch.tensor(values, dtype=torch.int32, device=device), psum_alignment)
        assert (room[mn * blocks * 128 :] == 0xA5).all()

    @pytest.mark.gpu
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 384])
    @pytest.mark.parametrize("m", [40, 256])
    def test_nothing_beyond_d_is_written(self, cuda, layout, value, m) -> None:
        """And the call ends: the work is bounded by the operands."""
        x = groups(m, 264, [128, 48, 256], cuda)
        out = GuardedOutput(x.shape, torch.float32, cuda)
        wrong = x.sizes()
        wrong[1] = value
        call(layout)(stacked(x.a, layout), stacked(x.b, layout), out.tensor, x.ks, wrong)
        torch.cuda.synchronize()
        out.check(complete=False)


VISIT = """
#include <deep_gemm/tile/k_groups.cuh>
using namespace deep_gemm;
struct Params {
    const int32_t* values;
    int4* found;
    int64_t count, psum_alignment, k_end, block_end;
};
extern "C" __global__ void visit_k_groups_kernel(const __grid_constant__ Params params) {
    const KGroupLayout layout{params.values, int32_t(params.count), int32_t(params.psum_alignment),
                              int32_t(params.k_end), int32_t(params.block_end)};
    visit_k_groups<64>(layout, [&](int32_t group, const KGroup& k) {
        params.found[group] = make_int4(k.begin, k.k, k.first_block, k.blocks);
    });
}
"""
