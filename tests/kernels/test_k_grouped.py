"""k_grouped_fp8_gemm_{tn,nt}_contiguous on every device, against one FP64 product for each group."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile
from devices import EACH_ARCH, FEW
from grouped_inputs import alignment_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import FP8, GuardedOutput, Operand, ceil_div
from k_grouped_inputs import LAYOUTS, Groups, bytes_of, call, groups, run, stacked
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm._extension import C

# Whole blocks, empty groups at either end and in the middle, tails of 128, many groups, groups of one chunk.
SIZES = [[128], [128, 256, 0, 384], [0, 16, 144, 0], [272, 48, 128, 0, 0, 16], [0, 0, 128]]


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("ks", SIZES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sizes(device, layout, ks) -> None:
    run(groups(40, 72, ks, device), layout)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_d_of_16_bits_whose_rows_the_copy_engine_cannot_store(device, layout, dtype, add) -> None:
    run(groups(33, 75, [144, 0, 256], device), layout, add, dtype)
    run(groups(33, 75, [0, 0], device), layout, add, dtype)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 40), (40, 1), (5, 8), (130, 264), (257, 24)])
def test_shapes(device, m, n, layout) -> None:
    run(groups(m, n, [128, 48], device), layout, "c_is_d")


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [9, 33, 100])
def test_many_groups(device, layout, count) -> None:
    """More than the smaller tables hold, and (nt) more than one launch can take."""
    run(groups(8, 16, [(16 * g) % 160 for g in range(count)], device), layout)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("add", ["nothing", "c_is_d", "c_separate"])
def test_no_group_has_any_k(device, layout, add) -> None:
    run(groups(24, 40, [0, 0, 0], device), layout, add)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("of_a", ["rows first", "blocks first", "rows first, row-major"])
def test_scales_either_way_round(device, layout, of_a) -> None:
    """[M, blocks] as well as [blocks, M]: the shape says which."""
    x = groups(42, 50, [128, 256], device)
    a, b = stacked(x.a, layout), stacked(x.b, layout)
    if of_a != "blocks first":
        a = Operand(a.data, a.scales.T.contiguous() if "row-major" in of_a else a.scales.T)
    b = Operand(b.data, b.scales.T)
    out = GuardedOutput(x.shape, torch.float32, device)
    call(layout)(a, b, out.tensor, x.ks, x.sizes())
    out.check()
    x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows_first", [False, True])
def test_as_many_rows_as_blocks(device, layout, rows_first) -> None:
    """The dimension of the scales that lies contiguous is M then; where none does, blocks come first."""
    x = groups(3, 50, [128, 0, 256], device)
    a, b = stacked(x.a, layout), stacked(x.b, layout)
    assert a.scales.shape == (3, 3)
    apart = torch.full((6, 6), float("nan"), device=device)[::2, ::2]
    apart.copy_(a.scales)
    for scales in [a.scales.T] if rows_first else [a.scales, apart]:
        out = GuardedOutput(x.shape, torch.float32, device)
        call(layout)(Operand(a.data, scales), b, out.tensor, x.ks, x.sizes())
        out.check()
        x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_matrices_that_start_anywhere(device) -> None:
    """Flattened groups at addresses that the copy engine cannot read are copied first."""
    x = groups(40, 50, [128, 48], device)
    a, b = stacked(x.a, "nt"), stacked(x.b, "nt")
    for offset in (1, 8):
        room = bytes_of(a.data).new_full((offset + a.data.numel() + 16,), 0x7F)
        moved = room[offset : offset + a.data.numel()]
        moved.copy_(bytes_of(a.data))
        out = GuardedOutput(x.shape, torch.float32, device)
        call("nt")(Operand(moved.view(FP8), a.scales), b, out.tensor, x.ks, x.sizes())
        out.check()
        x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_bad_group_stays_alone(device, layout) -> None:
    """NaN in the last elements of a group reach no other one: tails end where the group ends."""
    x = groups(40, 40, [144, 48, 128], device)
    a, b = stacked(x.a, layout), stacked(x.b, layout)
    start = sum(x.ks[:1])
    if layout == "tn":
        bytes_of(a.data)[start : start + x.ks[1]] = 0x7F
    else:
        bytes_of(a.data)[40 * start : 40 * (start + x.ks[1])] = 0x7F
    d = torch.empty(x.shape, device=device)
    call(layout)(a, b, d, x.ks, x.sizes())
    assert d[1].isnan().all()
    for g in (0, 2):
        assert_matches(d[g], product_nt(x.a[g], x.b[g]), f"group {g}")


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_bits_do_not_depend_on_other_groups(device, batch_invariant) -> None:
    """On request (docs/api-guarantees.md): a group by itself gets other tiles."""
    x = groups(200, 136, [512, 128, 7168], device)
    together = torch.empty(x.shape, device=device)
    call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), together, x.ks, x.sizes())
    for tile in ((128, 128), (128, 64), (128, 96)):
        again = torch.empty(x.shape, device=device)
        with forced_tile(device, (*x.shape[1:], 256), False, *tile):
            call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), again, x.ks, x.sizes())
        assert torch.equal(again, together), tile
    for g, (a, b) in enumerate(zip(x.a, x.b, strict=True)):
        alone = Groups([a], [b], [x.ks[g]])
        d = torch.empty(alone.shape, device=device)
        call("nt")(stacked([a], "nt"), stacked([b], "nt"), d, alone.ks, alone.sizes())
        assert torch.equal(d[0], together[g]), g


def in_psum_layout(x: Groups, alignment: int) -> tuple[Operand, Operand, torch.Tensor]:
    """Groups that start at multiples of the alignment, with NaN between them."""
    ends, end = [], 0
    for k in x.ks:
        end = ceil_div(end, alignment) * alignment + k
        ends.append(end)
    total = ceil_div(end, alignment) * alignment
    operands = []
    for parts in (x.a, x.b):
        data = torch.full((total, parts[0].data.shape[0]), 0x7F, dtype=torch.uint8, device=x.device)
        for part, last, k in zip(parts, ends, x.ks, strict=True):
            data[last - k : last] = bytes_of(part.data).T
        operands.append(Operand(data.view(FP8), torch.cat([part.scales.T for part in parts])))
    return *operands, torch.tensor(ends, dtype=torch.int32, device=x.device)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("host_sizes", [True, False], ids=["ks_given", "ks_on_the_device_only"])
@pytest.mark.parametrize("ks", [[128, 256], [16, 0, 144, 400], [0, 48, 0]], ids=str)
def test_psum_layout(device, ks, host_sizes) -> None:
    x = groups(40, 72, ks, device)
    a, b, ends = in_psum_layout(x, 128)
    out = GuardedOutput(x.shape, torch.float32, device)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(
        a, b, out.tensor, x.ks if host_sizes else None, ends, use_psum_layout=True
    )
    out.check()
    x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_psum_sizes_of_the_host_may_be_rounded_up(device) -> None:
    """As the public callers do, whose scales are those of the real sizes."""
    x = groups(40, 72, [112, 0, 304], device)
    with alignment_of(160):
        a, b, ends = in_psum_layout(x, 160)
        out = GuardedOutput(x.shape, torch.float32, device)
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, b, out.tensor, [160, 0, 320], ends, use_psum_layout=True)
        out.check()
        x.check(out.tensor)
        more = Operand(a.data, torch.cat([a.scales, a.scales]))  # than any such sizes have
        with pytest.raises(ValueError, match=r"a's scales must be \[5, 40\]"):
            deep_gemm.k_grouped_fp8_gemm_tn_contiguous(more, b, out.tensor, [160, 0, 320], ends, use_psum_layout=True)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_psum_scales_either_way_round(device) -> None:
    x = groups(40, 72, [128, 16], device)
    a, b, ends = in_psum_layout(x, 128)
    out = GuardedOutput(x.shape, torch.float32, device)
    a, b = Operand(a.data, a.scales.T), Operand(b.data, b.scales.T)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, b, out.tensor, None, ends, use_psum_layout=True)
    out.check()
    x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_psum_layout_of_matrices(device) -> None:
    x = groups(40, 72, [128, 256, 0], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    ends = x.sizes().cumsum(0).int()
    call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), out.tensor, x.ks, ends, use_psum_layout=True)
    out.check()
    x.check(out.tensor)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_older_keywords(device, layout) -> None:
    x = groups(40, 72, [128, 48], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    call(layout)(stacked(x.a, layout), stacked(x.b, layout), out.tensor, ks=x.ks, ks_tensor=x.sizes())
    x.check(out.tensor)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    ks=st.lists(st.integers(0, 20).map(lambda i: 16 * i), min_size=1, max_size=5),
    layout=st.sampled_from(LAYOUTS),
    add=st.sampled_from(["nothing", "c_is_d", "c_separate"]),
)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_drawn(device, m, n, ks, layout, add) -> None:
    run(groups(m, n, ks, device), layout, add)


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
        self.run_psum([128, 176], False, r"a's scales must have one row for each 128 of a group's K, 2 .* have 1", 1)

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


@pytest.mark.parametrize("device", FEW, indirect=True)
# Tiles and clusters that problems of such a size do not get by themselves.
@pytest.mark.sampled(10)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("rows", "cols", "cluster"), [(192, 128, (1, 1)), (192, 128, (2, 1)), (128, 128, (1, 2)), (256, 64, (2, 1))]
)
def test_forced_tiles(device, layout, rows, cols, cluster) -> None:
    m, n = 2 * rows - 8, 2 * cols - 8
    with forced_tile(device, (m, n, 256), False, rows, cols, (*cluster, 1)):
        run(groups(m, n, [144, 0, 128], device), layout, "c_is_d")


REFUSALS = {
    "d is fp64": (
        lambda x: x.update(d=x["d"].double()),
        TypeError,
        r"d must be bfloat16, float32 or float16, but is float64",
    ),
    "ks do not add up": (
        lambda x: x.update(ks=[128, 128]),
        ValueError,
        r"sum_k=256 as ks_cpu adds up|40 \* 256 elements",
    ),
    "a k of 8": (
        lambda x: x.update(ks=[136, 40]),
        ValueError,
        r"multiple of 16, but ks_cpu\[0\] is 136: pad with zeros to 144",
    ),
    "a k beyond 32 bits": (lambda x: x.update(ks=[2**31, 48]), ValueError, r"ks_cpu\[0\] is 2147483648.*32 bits"),
    "negative": (lambda x: x.update(ks=[192, -16]), ValueError, r"ks_cpu\[1\] is -16"),
    "one k too few": (lambda x: x.update(ks=[176]), ValueError, r"each of d's 2 groups, but has 1"),
    "sizes are int64": (lambda x: x.update(sizes=x["sizes"].long()), TypeError, r"grouped_layout must be int32"),
    "sizes too long": (
        lambda x: x.update(sizes=x["sizes"].repeat(2)),
        ValueError,
        r"grouped_layout must be \[groups\] = \[2\], but has shape \[4\]",
    ),
    "scales of whole K": (
        lambda x: x.update(a=Operand(x["a"].data, x["a"].scales[:1])),
        ValueError,
        r"a's scales must be \[2, 40\].*has shape \[1, 40\]",
    ),
    "b has other rows": (lambda x: x.update(b=x["a"]), ValueError, r"b has N=40 but d has N=72|72 \* 176 elements"),
    "recipe of blocks": (lambda x: x.update(recipe=(1, 128, 128)), ValueError, r"recipe \(1, 1, 128\)"),
    "a is bf16": (
        lambda x: x.update(a=Operand(x["a"].data.bfloat16(), x["a"].scales)),
        TypeError,
        r"a must be float8_e4m3fn",
    ),
    "c is bf16": (lambda x: x.update(c=x["d"].bfloat16()), TypeError, r"c must have d's dtype float32"),
    "no sizes": (
        lambda x: x.update(ks=None),
        ValueError,
        r"ks_cpu may be missing in the psum layout only|each of d's 2 groups",
    ),
}


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", REFUSALS)
def test_refused(device, layout, name) -> None:
    spoil, exception, message = REFUSALS[name]
    x = groups(40, 72, [128, 48], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    arguments = {
        "a": stacked(x.a, layout),
        "b": stacked(x.b, layout),
        "d": out.tensor,
        "ks": x.ks,
        "sizes": x.sizes(),
        "c": None,
        "recipe": (1, 1, 128),
    }
    spoil(arguments)
    with pytest.raises(exception, match=message):
        call(layout)(*(arguments[key] for key in ("a", "b", "d", "ks", "sizes", "c", "recipe")))
    out.assert_untouched()


# Of one layout alone. In the psum layout where `psum` stands in the name.
REFUSALS_TN = {
    "a has other rows": (lambda x: x.update(a=x["b"]), r"a has M=72 but d has M=40"),
    "b has another K": (
        lambda x: x.update(b=Operand(x["b"].data[:-16], x["b"].scales)),
        r"b has sum_k=160 but a has sum_k=176",
    ),
    "a's lines overlap": (
        lambda x: x.update(a=Operand(x["a"].data.view(torch.uint8)[:1].expand(176, 40).view(FP8), x["a"].scales)),
        r"a's rows overlap: row stride 0 is less than M=40",
    ),
    "psum: a is too short": (
        lambda x: x.update(a=Operand(x["a"].data[:-16], x["a"].scales), b=Operand(x["b"].data[:-16], x["b"].scales)),
        r"a must have at least 176 rows of K in the psum layout, but has 160",
    ),
    "psum: scales of one dimension": (
        lambda x: x.update(ks=None, a=Operand(x["a"].data, x["a"].scales[0])),
        r"a's scales must be \[K blocks, M\], but have shape \[40\]",
    ),
}
REFUSALS_NT = {
    "a has gaps": (
        lambda x: x.update(a=Operand(x["a"].data.view(torch.uint8).repeat_interleave(2).view(FP8)[::2], x["a"].scales)),
        r"a must be contiguous, but its stride is 2",
    ),
}


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("layout", "name"), [("tn", x) for x in REFUSALS_TN] + [("nt", x) for x in REFUSALS_NT])
def test_refused_in_one_layout(device, layout, name) -> None:
    spoil, message = {**REFUSALS_TN, **REFUSALS_NT}[name]
    psum = name.startswith("psum")
    x = groups(40, 72, [128, 48], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    sizes = torch.tensor([128, 176], dtype=torch.int32, device=device) if psum else x.sizes()
    arguments = {"a": stacked(x.a, layout), "b": stacked(x.b, layout), "ks": x.ks}
    spoil(arguments)
    with pytest.raises(ValueError, match=message):
        call(layout)(arguments["a"], arguments["b"], out.tensor, arguments["ks"], sizes, use_psum_layout=psum)
    out.assert_untouched()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_gaps_are_refused_where_operands_are_flattened(device) -> None:
    x = groups(40, 72, [48, 128], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    with pytest.raises(ValueError, match=r"psum layout leaves gaps.*use k_grouped_fp8_gemm_tn_contiguous"):
        call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), out.tensor, x.ks, x.sizes(), use_psum_layout=True)
    out.assert_untouched()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_name_given_twice(device, layout) -> None:
    x = groups(40, 72, [128], device)
    d = torch.empty(x.shape, device=device)
    a, b = stacked(x.a, layout), stacked(x.b, layout)
    with pytest.raises(TypeError, match=r"ks is the older name of ks_cpu"):
        call(layout)(a, b, d, x.ks, x.sizes(), ks=x.ks)
    with pytest.raises(TypeError, match=r"ks_tensor is the older name of grouped_layout"):
        call(layout)(a, b, d, x.ks, x.sizes(), ks_tensor=x.sizes())
    with pytest.raises(TypeError, match=r"grouped_layout is missing"):
        call(layout)(a, b, d, x.ks)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("m", "n", "ks"),
    [
        (4096, 7168, [4096, 0, 2048 + 128, 8192]),
        (7168, 2048, [1024 + 16 * g for g in range(32)]),
        (264, 136, [144] * 200),
    ],
    ids=["four", "thirty-two", "two hundred"],
)
def test_large(cuda, layout, m, n, ks) -> None:
    run(groups(m, n, ks, cuda), layout, "c_is_d")


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_a_cuda_graph(cuda, layout) -> None:
    """Replays see new data; tn sees new sizes too, since the kernels read them on the device."""
    x = groups(136, 264, [256, 0, 128, 384], cuda)
    y = groups(136, 264, x.ks if layout == "nt" else [128, 512, 0, 128], cuda, seed=50)
    a, b, sizes = stacked(x.a, layout), stacked(x.b, layout), x.sizes()
    d = torch.zeros(x.shape, device=cuda)
    call(layout)(a, b, d, x.ks, sizes)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(layout)(a, b, d, x.ks, sizes)
    for now in (y, x):
        for target, source in ((a, stacked(now.a, layout)), (b, stacked(now.b, layout))):
            bytes_of(target.data).copy_(bytes_of(source.data))
            target.scales.copy_(source.scales)
        sizes.copy_(now.sizes())
        d.fill_(float("nan"))
        graph.replay()
        now.check(d)
