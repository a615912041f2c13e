"""The copy engine: tensor maps and their rules, bulk copies, reductions."""

# ruff: noqa: E501  (PTX stands in the tables as it is, one case a line)

from __future__ import annotations

import itertools

import pytest
import torch
from copy_tools import WAIT, dump, entry, launch
from ptx_tools import HEADER, SCHEDULES, header

from deep_gemm import simulator


def swizzle(offset: int, span: int) -> int:
    return offset ^ ((offset >> 7) & (span // 16 - 1)) << 4 if span else offset


def boxes():
    for rank, span in itertools.product(range(1, 6), (0, 32, 64, 128)):
        inner = span or 64
        yield rank, span, inner


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("rank", "span", "inner"), boxes())
def test_tensor_load(rank: int, span: int, inner: int, schedule: str, seed: int) -> None:
    """Every rank and swizzle, at a corner where part of the box is out of range on both sides and reads zero."""
    sizes = [3, 2, 3, 5, inner + 32][5 - rank :]
    box = [2, 2, 2, 4, inner][5 - rank :]
    at = [2, -1, 1, -2, 48][5 - rank :]
    source = torch.arange(1, 1 + torch.Size(sizes).numel()).to(torch.uint8).reshape(sizes)
    total = torch.Size(box).numel()
    coordinates = ", ".join(str(x) for x in reversed(at))
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {total};
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%d0, {{{coordinates}}}], [%r1];
    {WAIT}{dump(total)}"""
    out = torch.full((total,), 99, dtype=torch.uint8)
    launch(entry(body), out, source, simulator.tensor_map(source, box, span), schedule=schedule, seed=seed)
    expected = torch.zeros(total, dtype=torch.uint8)
    for index in itertools.product(*map(range, box)):
        place = [a + i for a, i in zip(at, index, strict=True)]
        inside = all(0 <= x < n for x, n in zip(place, sizes, strict=True))
        linear = 0
        for i, n in zip(index, box, strict=True):
            linear = linear * n + i
        expected[swizzle(linear, span)] = source[tuple(place)] if inside else 0
    assert torch.equal(out, expected)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_a_warp_that_spins_lets_copies_take_effect(schedule: str, seed: int) -> None:
    """It waits for what a copy writes to global memory."""
    body = """
    mov.u32 %r5, 7;
    st.shared.v4.u32 [%r0], {%r5, %r5, %r5, %r5};
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r0], 16;
    cp.async.bulk.commit_group;
SPIN:
    ld.acquire.gpu.global.u32 %r6, [%d1];
    setp.ne.u32 %p1, %r6, 7;
    @%p1 bra SPIN;
    cp.async.bulk.wait_group 0;"""
    out = torch.zeros(4, dtype=torch.int32)
    launch(entry(body), out, out, schedule=schedule, seed=seed)
    assert out.tolist() == [7] * 4


ROWS = [4, -1, 0, 4]  # one is outside, one comes twice
GATHER = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
SCATTER = "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"


STARTS = {
    "load": "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%d0, {PLACE}], [%r1];",
    "prefetch": "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d0, {PLACE}];",
    "store": "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d0, {PLACE}], [%r0];",
    "reduction": "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d0, {PLACE}], [%r0];",
    "gathered rows": f"{GATHER} [%r0], [%d0, {{PLACE, 0, 0, 0}}], [%r1];",
    "scattered rows": f"{SCATTER} [%d0, {{PLACE, 0, 0, 0}}], [%r0];",
}
STORED = ("store", "reduction", "scattered rows")


def refusal(form: str, tensor: torch.Tensor, span: int, *place: int) -> str:
    """What is reported of a box of 64 bytes of a row that begins there."""
    tensor_map = simulator.tensor_map(tensor, [1, 64 // tensor.dtype.itemsize], span)
    text = (four_rows_entry if form.endswith("rows") else entry)(STARTS[form].replace("PLACE", "{}, {}".format(*place)))
    report = launch(text, tensor, tensor, tensor_map, hazards="report")
    return "".join(hazard.message for hazard in report.hazards if "coordinates" in hazard.message)


@pytest.mark.parametrize("form", STARTS)
@pytest.mark.parametrize(
    ("dtype", "span", "at"),
    [(torch.float32, 0, 3), (torch.float32, 0, -1), (torch.bfloat16, 128, 4), (torch.bfloat16, 0, 12)],
)
def test_a_box_begins_at_whole_16_bytes_of_a_row(form: str, dtype: torch.dtype, span: int, at: int) -> None:
    """As on an H200, which answers "illegal instruction"; a row's number is free."""
    source = torch.zeros((8, 128 // dtype.itemsize), dtype=dtype)
    step = 16 // dtype.itemsize
    wanted = f"needs first coordinates that are multiples of {step}, 16 bytes, got {at}"
    assert wanted in refusal(form, source, span, at, 1)
    assert not refusal(form, source, span, at // step * step % 16, 1)


@pytest.mark.parametrize("form", STARTS)
@pytest.mark.parametrize("place", [(-4, 1), (0, -1)])
def test_a_store_does_not_begin_in_front_of_its_tensor(form: str, place: tuple[int, int]) -> None:
    """As on an H200, where loads and prefetches may."""
    said = refusal(form, torch.zeros((8, 32)), 0, *place)
    assert bool(said) == (form in STORED)
    assert not said or f"a tensor store needs coordinates that are not negative, got {min(place)}" in said


def four_rows_entry(body: str) -> str:
    return entry(body).replace(HEADER, header("", "sm_100a"))


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize("span", [0, 128])
def test_four_rows_are_gathered(span: int, schedule: str, seed: int) -> None:
    source = torch.arange(1, 1 + 5 * 160).to(torch.uint8).reshape(5, 160)
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;
    {GATHER} [%r0], [%d0, {{48, {", ".join(map(str, ROWS))}}}], [%r1];
    {WAIT}{dump(512)}"""
    out = torch.full((512,), 99, dtype=torch.uint8)
    tensor_map = simulator.tensor_map(source, [1, 128], span)
    launch(four_rows_entry(body), out, source, tensor_map, schedule=schedule, seed=seed)
    expected = torch.zeros(512, dtype=torch.uint8)
    for row, column in itertools.product(range(4), range(112)):
        if ROWS[row] >= 0:
            expected[swizzle(128 * row + column, span)] = source[ROWS[row], 48 + column]
    assert torch.equal(out, expected)


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_four_rows_are_scattered(schedule: str, seed: int) -> None:
    source = torch.arange(4 * 64).to(torch.uint8).reshape(4, 64)
    target = torch.full((6, 64), 77, dtype=torch.uint8)
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d2], 256, [%r1];
    {WAIT}
    {SCATTER} [%d0, {{0, 5, 0, 9, 3}}], [%r0];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    expected = target.clone()
    expected[[5, 0, 3]] = source[[0, 1, 3]]
    tensor_map = simulator.tensor_map(target, [1, 64])
    launch(four_rows_entry(body), target, source, tensor_map, schedule=schedule, seed=seed)
    assert torch.equal(target, expected)


def test_four_rows_need_a_box_of_one() -> None:
    source = torch.zeros(8, 64, dtype=torch.uint8)
    body = f"{GATHER} [%r0], [%d0, {{0, 0, 1, 2, 3}}], [%r1];"
    with pytest.raises(RuntimeError, match="boxes of four rows need a tensor map of one, got 4"):
        launch(four_rows_entry(body), source, source, simulator.tensor_map(source, [4, 64]))
    with pytest.raises(RuntimeError, match="four rows need five coordinates"):
        launch(four_rows_entry(body.replace(", 3}", "}")), source, source)


STORES = [("", None), ("reduce.", "add"), ("reduce.", "min"), ("reduce.", "max")]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
@pytest.mark.parametrize(("prefix", "operation"), STORES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32])
def test_tensor_store(prefix: str, operation: str | None, dtype: torch.dtype, schedule: str, seed: int) -> None:
    """A load, then a store of the same box elsewhere, partly out of range: what is outside stays as it was."""
    columns = 64 // dtype.itemsize
    source = torch.arange(4 * columns).reshape(4, columns).to(dtype)
    target = torch.full((6, columns), 7).to(dtype)
    name = f"cp.{prefix}async.bulk.tensor.2d.global.shared::cta{'.' + operation if operation else ''}.tile.bulk_group"
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d2], 256, [%r1];
    {WAIT}
    {name} [%d0, {{0, 4}}], [%r0];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    before = target.clone()
    launch(entry(body), target, source, simulator.tensor_map(target, (4, columns), 0), schedule=schedule, seed=seed)
    combine = {None: lambda old, new: new, "add": torch.add, "min": torch.minimum, "max": torch.maximum}[operation]
    assert torch.equal(target[:4], before[:4])
    assert torch.equal(target[4:], combine(before[4:], source[:2]))


ROW_ENDS = [(130, 136, 128, 136), (1, 8, 0, 8), (130, 136, 120, 136), (130, 144, 128, 136), (136, 136, 128, 136)]


def store_of_ones(memory: torch.Tensor, target: torch.Tensor, at: int, hazards: str) -> simulator.Report:
    """Two rows of 16 BF16 ones to columns `at` and up of rows 0 and 1 of `target`, a view into `memory`."""
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d2], 64, [%r1];
    {WAIT}
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d0, {{{at}, 0}}], [%r0];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    source = torch.ones((2, 16), dtype=torch.bfloat16)
    return launch(entry(body), memory, source, simulator.tensor_map(target, (2, 16), 0), hazards=hazards)


@pytest.mark.parametrize(("columns", "stride", "at", "written_end"), ROW_ENDS)
def test_tensor_store_writes_whole_16_bytes(columns: int, stride: int, at: int, written_end: int) -> None:
    """As the H200 does: of rows of 130 BF16, columns 130 to 135 are written too."""
    whole = torch.zeros((3, stride), dtype=torch.bfloat16)
    report = store_of_ones(whole, whole[:, :columns], at, "report")
    expected = torch.zeros_like(whole)
    expected[:2, at:written_end] = 1
    assert torch.equal(whole, expected)
    kinds = [hazard.kind for hazard in report.hazards]
    assert kinds == (["tensor store past the innermost extent"] if columns % 8 else [])
    if columns % 8:
        with pytest.raises(RuntimeError, match=r"tensor store past the innermost extent: .* writes whole 16 bytes"):
            store_of_ones(whole, whole[:, :columns], at, "error")


def test_tensor_store_away_from_the_row_ends_is_no_hazard() -> None:
    whole = torch.zeros((3, 136), dtype=torch.bfloat16)
    store_of_ones(whole, whole[:, :130], 112, "error")
    assert (whole[:2, 112:128] == 1).all()
    assert whole.sum() == 32


def test_tensor_store_does_not_leave_the_tensors_of_the_launch() -> None:
    """The last row's end lies in no tensor: reported twice, and what lies behind stays as it is."""
    memory = torch.zeros(3 * 136, dtype=torch.bfloat16)
    report = store_of_ones(memory[: 136 + 130], memory.as_strided((2, 130), (136, 1)), 128, "report")
    assert [hazard.kind for hazard in report.hazards] == ["tensor store past the innermost extent", "out of bounds"]
    assert memory.nonzero().flatten().tolist() == [*range(128, 136), 136 + 128, 136 + 129]


@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_bulk_store_and_reduction(schedule: str, seed: int) -> None:
    source = torch.arange(64, dtype=torch.int32)
    out = torch.ones(128, dtype=torch.int32)
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%d2], 256, [%r1];
    {WAIT}
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r0], 256;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1+256], [%r0], 256;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;"""
    launch(entry(body), out, source, schedule=schedule, seed=seed)
    assert torch.equal(out, torch.cat([source, source + 1]))


BULK_ADDS = [("s32", torch.int32), ("f32", torch.float32), ("noftz.f16", torch.float16), ("noftz.bf16", torch.bfloat16)]


@pytest.mark.parametrize(("kind", "dtype"), BULK_ADDS)
def test_bulk_store_adds_every_type(kind: str, dtype: torch.dtype) -> None:
    source = torch.arange(-16, 16).to(dtype)
    out = torch.arange(32).to(dtype)
    count = source.numel() * dtype.itemsize
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {count};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d2], {count}, [%r1];
    {WAIT}
    cp.reduce.async.bulk.global.shared::cta.bulk_group.add.{kind} [%d1], [%r0], {count};
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;"""
    expected = source + out
    launch(entry(body), out, source)
    assert torch.equal(out, expected)


def rejected(expected: str, **changes) -> None:
    tensor = changes.pop("tensor", torch.zeros(64, 256, dtype=torch.uint8))
    arguments = {"box": (8, 128), "swizzle": 128, **changes}
    with pytest.raises(ValueError, match=expected):
        simulator.tensor_map(tensor, **arguments)


def test_tensor_map_rules() -> None:
    storage = torch.zeros(64 * 256 + 64, dtype=torch.uint8)
    simulator.tensor_map(torch.zeros(64, 256, dtype=torch.uint8), (256, 128), 128)
    rejected("multiple of 16 bytes", tensor=storage[1 : 1 + 64 * 256].reshape(64, 256))
    rejected("multiple of 16 bytes", tensor=torch.zeros(64, 200, dtype=torch.uint8))
    rejected("1 to 256", box=(257, 128))
    rejected("1 to 256", box=(0, 128))
    rejected("multiple of 16 bytes", box=(8, 120))
    rejected("swizzle", box=(8, 256))
    rejected("swizzle", box=(8, 64), swizzle=32)
    narrow = torch.zeros(64, 192, dtype=torch.uint8)
    rejected("multiple of 128 elements", tensor=narrow[:, :160], box=(8, 128), packed="u4_spread")
    rejected("those of the box 128", tensor=narrow, box=(8, 64), packed="u4_spread")
    rejected("multiple of 32 bytes", tensor=narrow[:, 16:176], box=(8, 128), packed="u4_spread")
    rejected("128B or none", tensor=narrow, box=(8, 128), swizzle=64, packed="u6_spread")
    rejected("1 to 5 dimensions", tensor=torch.zeros((1,) * 5 + (16,), dtype=torch.uint8), box=(1,) * 5 + (16,))


def spread(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Bytes of rows: 16 elements fill the first 8 or 12 of each 16."""
    chunks = packed.view(packed.shape[0], -1, 2 * bits)
    return torch.nn.functional.pad(chunks, (0, 16 - 2 * bits)).reshape(packed.shape[0], -1)


@pytest.mark.parametrize("span", [0, 128])
@pytest.mark.parametrize(("packed", "bits"), [("u4", 4), ("u4_spread", 4), ("u6_spread", 6)])
def test_narrow_elements_are_unpacked_and_counted_as_they_lie_in_memory(packed: str, bits: int, span: int) -> None:
    """Four rows of 128 elements, of which the last lies outside and is zero."""
    source = torch.randint(0, 256, (3, 256 * bits // 8), dtype=torch.uint8)
    row_bytes = 16 * bits
    inside = torch.cat([source[:, row_bytes:], torch.zeros(1, row_bytes, dtype=torch.uint8)])
    expected = inside if packed == "u4" else spread(inside, bits)
    total = expected.numel()
    body = f"""
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {4 * row_bytes};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%d0, {{128, 0}}], [%r1];
    {WAIT}{dump(total)}"""
    out = torch.full((total,), 99, dtype=torch.uint8)
    launch(entry(body), out, source, simulator.tensor_map(source, (4, 128), span, packed))
    places = [swizzle(i, span) for i in range(total)]
    assert torch.equal(out[places], expected.reshape(-1))


def test_narrow_elements_have_rules_of_their_own() -> None:
    source = torch.zeros(8, 128, dtype=torch.uint8)
    spread_map = simulator.tensor_map(source, (4, 128), 128, "u4_spread")
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0, {64, 0}], [%r1];"
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d0, {0, 0}], [%r0];"
    with pytest.raises(RuntimeError, match="first coordinates that are multiples of 128"):
        launch(entry(load), torch.zeros(1), source, spread_map)
    with pytest.raises(RuntimeError, match="cannot be stored to"):
        launch(entry(store), torch.zeros(1), source, spread_map)
