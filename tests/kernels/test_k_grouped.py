"""k_grouped_fp8_gemm_{tn,nt}_contiguous on every device, against one FP64 product for each group."""

from __future__ import annotations

import pytest
import torch
from candidates import forced_tile, stands_in
from devices import EACH_ARCH, FEW
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import FP8, GuardedOutput, Operand, converts_e4m3
from k_grouped_inputs import LAYOUTS, Groups, bytes_of, call, groups, run, stacked
from reference import assert_matches, product_nt
from sampling import examples

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
    """NaN in the last elements of a group reach no other one: tails end where the group ends. (Where E4M3 is converted
    it is 480, docs/api-guarantees.md.)"""
    x = groups(40, 40, [144, 48, 128], device)
    a, b = stacked(x.a, layout), stacked(x.b, layout)
    start = sum(x.ks[:1])
    if layout == "tn":
        bytes_of(a.data)[start : start + x.ks[1]] = 0x7F
    else:
        bytes_of(a.data)[40 * start : 40 * (start + x.ks[1])] = 0x7F
    d = torch.empty(x.shape, device=device)
    call(layout)(a, b, d, x.ks, x.sizes())
    if not converts_e4m3(device):
        assert d[1].isnan().all()
    for g in (0, 2):
        assert_matches(d[g], product_nt(x.a[g], x.b[g]), f"group {g}")


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_bits_do_not_depend_on_other_groups(device, batch_invariant) -> None:
    """On request (docs/api-guarantees.md): a group by itself gets other tiles."""
    x = groups(200, 136, [512, 128, 7168], device)
    together = torch.empty(x.shape, device=device)
    call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), together, x.ks, x.sizes())
    for tile in ((128, 128), (128, 64), (64, 128) if stands_in(device) else (128, 96)):
        again = torch.empty(x.shape, device=device)
        with forced_tile(device, (*x.shape[1:], 256), False, *tile):
            call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), again, x.ks, x.sizes())
        assert torch.equal(again, together), tile
    for g, (a, b) in enumerate(zip(x.a, x.b, strict=True)):
        alone = Groups([a], [b], [x.ks[g]])
        d = torch.empty(alone.shape, device=device)
        call("nt")(stacked([a], "nt"), stacked([b], "nt"), d, alone.ks, alone.sizes())
        assert torch.equal(d[0], together[g]), g


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_older_keywords(device, layout) -> None:
    x = groups(40, 72, [128, 48], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    call(layout)(stacked(x.a, layout), stacked(x.b, layout), out.tensor, ks=x.ks, ks_tensor=x.sizes())
    x.check(out.tensor)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
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
