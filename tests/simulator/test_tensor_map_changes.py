"""Tensor maps that a kernel changes: each field, the ways to publish a change and to acquire it, and what is forgotten."""

# ruff: noqa: E501  (PTX stands as it is, one instruction a line)

from __future__ import annotations

import struct

import pytest
import torch
from ptx_tools import HEADER, SCHEDULES, header, kernel, run_kernel

from deep_gemm import simulator

ROWS, COLUMNS, BOX_ROWS, BOX_COLUMNS = 16, 64, 8, 32
KIND = "tensor map fence"


def entry(body: str) -> str:
    """One warp. %p0: lane 0. %d0: the host's map, %d1: out, %d2: in, %d3: where the changed map goes; %r0: a box, %r1: a
    barrier, %r3: the map in shared memory."""
    from_host = "\n".join(
        f"    @%p0 ld.param.b64 %d4, [map+{at}];\n    @%p0 st.shared.b64 [%r3+{at}], %d4;" for at in range(0, 128, 8)
    )
    return f"""{HEADER}
.visible .entry test(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 in, .param .u64 maps)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %d<32>;
    .shared .align 1024 .b8 box[{BOX_ROWS * BOX_COLUMNS}];
    .shared .align 128 .b8 held[128];
    .shared .align 8 .b64 bar;
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    ld.param.u64 %d3, [maps];
    mov.u32 %r0, box;
    mov.u32 %r1, bar;
    mov.u32 %r3, held;
    mov.u32 %r2, %tid.x;
    setp.eq.u32 %p0, %r2, 0;
    @%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
{from_host}
{body}
    ret;
}}
"""


def replaced(field: str, value: str, space: str = "shared::cta") -> str:
    wide = "b64" if field.startswith(("global_address", "global_stride")) else "b32"
    name, _, ordinal = field.partition(" ")
    at = "%r3" if space == "shared::cta" else "%d3"
    return f"    @%p0 tensormap.replace.tile.{name}.{space}.b1024.{wide} [{at}], {f'{ordinal}, ' if ordinal else ''}{value};\n"


MEET = "    bar.warp.sync -1;\n"
PUBLISH = (
    "    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d3], [%r3], 128;\n"
)
RELEASE = "    fence.proxy.tensormap::generic.release.gpu;\n"
ACQUIRE = "    fence.proxy.tensormap::generic.acquire.gpu [%d3], 128;\n"
BY_STORES = "\n".join(
    f"    @%p0 ld.shared.v2.b64 {{%d5, %d6}}, [%r3+{at}];\n    @%p0 st.global.v2.b64 [%d3+{at}], {{%d5, %d6}};"
    for at in range(0, 128, 16)
)
LOAD = f"""
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {BOX_ROWS * BOX_COLUMNS};
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%d3, {{0, 0}}], [%r1];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
    @!%p1 bra WAIT;
    shl.b32 %r4, %r2, 3;
    add.u32 %r5, %r0, %r4;
    ld.shared.b64 %d7, [%r5];
    cvt.u64.u32 %d8, %r4;
    add.u64 %d8, %d1, %d8;
    st.global.b64 [%d8], %d7;
"""
STORE = """
    shl.b32 %r4, %r2, 3;
    add.u32 %r5, %r0, %r4;
    st.shared.b64 [%r5], %d1;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    @%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d3, {0, 0}], [%r0];
    @%p0 cp.async.bulk.commit_group;
"""
TO_SOURCE = replaced("global_address", "%d2")
RIGHT = TO_SOURCE + MEET + PUBLISH + ACQUIRE + LOAD


def run(
    body: str, seed: tuple[str, int] = SCHEDULES[0], text: str = "", grid: int = 1, **options
) -> tuple[simulator.Report, torch.Tensor, torch.Tensor]:
    """The report, what the box became, and the tensor whose address is `in`. The host's map is of another one."""
    source = torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS).to(torch.uint8)
    other = torch.zeros(ROWS, COLUMNS, dtype=torch.uint8)
    out, maps = torch.full((BOX_ROWS, BOX_COLUMNS), 99, dtype=torch.uint8), torch.zeros(192, dtype=torch.uint8)
    place = maps.data_ptr() + -maps.data_ptr() % 64
    params = simulator.tensor_map(other, [BOX_ROWS, BOX_COLUMNS], 0) + struct.pack(
        "QQQ", out.data_ptr(), source.data_ptr(), place
    )
    report = simulator.run(
        text or entry(body), block=[32], grid=[grid], params=params, tensors=[out, maps, source], inputs=[other],
        schedule=seed[0], seed=seed[1], **options,
    )  # fmt: skip
    return report, out, source


def boxed(source: torch.Tensor, rows: int, step: int) -> torch.Tensor:
    expected = torch.zeros(BOX_ROWS, BOX_COLUMNS, dtype=torch.uint8)
    expected[:rows] = source[: rows * step : step, :BOX_COLUMNS]
    return expected


@pytest.mark.parametrize("seed", SCHEDULES)
@pytest.mark.parametrize("way", ["in shared memory", "in global memory", "by stores", "by a generic address"])
def test_a_changed_map_is_used(way: str, seed: tuple[str, int]) -> None:
    fields = {"global_address": "%d2", "global_dim 1": "3", "global_stride 0": str(2 * COLUMNS)}
    space = "global" if way == "in global memory" else "shared::cta"
    lines = "".join(replaced(field, value, space) for field, value in fields.items())
    if way == "by a generic address":
        lines = lines.replace(".shared::cta", "").replace("[%r3]", "[%d9]")
        lines = "    cvt.u64.u32 %d9, %r3;\n    cvta.shared.u64 %d9, %d9;\n" + lines
    body = {
        "in global memory": BY_STORES + lines + RELEASE,
        "by stores": lines + BY_STORES + RELEASE,
    }.get(way, lines + MEET + PUBLISH)
    _, out, source = run(body + ACQUIRE + LOAD, seed)
    assert torch.equal(out, boxed(source, 3, 2))


def test_every_other_field() -> None:
    """The host's map is of rank 2, boxes of 8 x 32 bytes; the changed one of 16 x 8 words, swizzled by 32 bytes."""
    fields = [
        ("rank", "1"), ("box_dim 0", "8"), ("box_dim 1", "8"), ("global_dim 0", str(COLUMNS // 4)),
        ("elemtype", "2"), ("interleave_layout", "0"), ("swizzle_mode", "1"), ("swizzle_atomicity", "0"),
        ("fill_mode", "0"), ("element_stride 0", "1"),
    ]  # fmt: skip
    lines = "".join(replaced(field, value) for field, value in fields)
    _, out, source = run(TO_SOURCE + lines + MEET + PUBLISH + ACQUIRE + LOAD)
    plain = boxed(source, BOX_ROWS, 1).view(-1, 2, 16)
    halves = torch.tensor([row * BOX_COLUMNS >> 7 & 1 for row in range(BOX_ROWS)])
    expected = torch.where(halves.bool()[:, None, None], plain.flip(1), plain)
    assert torch.equal(out.view(-1, 2, 16), expected)


MISTAKES = {
    "nobody acquires": (TO_SOURCE + MEET + PUBLISH + LOAD, KIND, "acquire of it stands before"),
    "acquired before the change": (TO_SOURCE + MEET + ACQUIRE + PUBLISH + LOAD, KIND, "acquire of it stands before"),
    "changed again behind the fences": (
        TO_SOURCE + MEET + PUBLISH + ACQUIRE + replaced("global_address", "%d2", "global") + LOAD, KIND, "release stands behind",
    ),
    "no release behind a change in global memory": (
        BY_STORES + replaced("global_address", "%d2", "global") + ACQUIRE + LOAD, KIND, "release stands behind",
    ),
    "no release behind plain stores": (TO_SOURCE + BY_STORES + ACQUIRE + LOAD, KIND, "release stands behind"),
    "released before the change": (TO_SOURCE + RELEASE + BY_STORES + ACQUIRE + LOAD, KIND, "release stands behind"),
    "an acquire by another lane": (
        TO_SOURCE + MEET + PUBLISH + ACQUIRE.replace("    ", "    @!%p0 ") + LOAD, KIND, "acquire of it stands before",
    ),
    "no __syncwarp before all lanes copy the map": (TO_SOURCE + PUBLISH + ACQUIRE + LOAD, "warp sync", "shared memory"),
    "changed while a store reads it": (
        TO_SOURCE + MEET + PUBLISH + ACQUIRE + STORE + MEET + PUBLISH, KIND, "may still read it",
    ),
    "a stride of 8 bytes": (TO_SOURCE + replaced("global_stride 0", "8") + MEET + PUBLISH + ACQUIRE + LOAD, "tensor map", "has become none"),
    "no rows": (TO_SOURCE + replaced("global_dim 1", "0") + MEET + PUBLISH + ACQUIRE + LOAD, "tensor map", "has become none"),
    "an address that was not replaced": (
        replaced("global_address", "64") + MEET + PUBLISH + ACQUIRE + LOAD, "out of bounds", "belongs to no tensor",
    ),
    "used where it stands in shared memory": (
        TO_SOURCE + MEET + "    cvt.u64.u32 %d3, %r3;\n    cvta.shared.u64 %d3, %d3;\n" + LOAD, "tensor map", "must be copied to global memory",
    ),
    "no map in shared memory": (
        "    @%p0 st.shared.b64 [%r3], %d2;\n" + TO_SOURCE, "tensor map", "there is no tensor map",
    ),
}  # fmt: skip


@pytest.mark.sampled(len(MISTAKES) * 8)  # by default each once
@pytest.mark.parametrize("seed", SCHEDULES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, seed: tuple[str, int]) -> None:
    body, kind, words = MISTAKES[mistake]
    report, *_ = run(body, seed, hazards="report")
    assert report.hazards[0].kind == kind
    assert words in report.hazards[0].message


def test_a_store_that_was_waited_for_has_read_the_map() -> None:
    wait = "    @%p0 cp.async.bulk.wait_group.read 0;\n"
    report, *_ = run(TO_SOURCE + MEET + PUBLISH + ACQUIRE + STORE + wait + MEET + PUBLISH)
    assert not report.hazards


@pytest.mark.parametrize("scope", ["cta", "gpu"])
def test_a_fence_covers_its_scope(scope: str) -> None:
    """Block 0 changes the map, block 1 uses it."""
    acquire = ACQUIRE.replace(".gpu", f".{scope}")
    text = entry(f"""
    mov.u32 %r9, %ctaid.x;
    setp.eq.u32 %p3, %r9, 1;
    @%p3 bra SECOND;
{TO_SOURCE}{MEET}{PUBLISH}
    ret;
SECOND:
{acquire}{LOAD}""")
    report, out, source = run("", text=text, grid=2, hazards="report")
    if scope == "gpu":
        assert not report.hazards
        assert torch.equal(out, boxed(source, BOX_ROWS, 1))
    else:
        assert {hazard.kind for hazard in report.hazards} == {KIND}


REFUSED = {
    "tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r3], 0, 2;": "leave elements out are not modelled",
    "tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r3], 1;": "fill_mode of tensor maps is modelled as 0",
    "tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r3], 1;": "interleave_layout of tensor maps",
    "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r3], 4;": "swizzle mode 4",
    "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r3], 9;": "element type 9",
    "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r3], 5, %r2;": "dimension 0 to 4 expected",
    "tensormap.replace.tile.global_stride.shared::cta.b1024.b32 [%r3], 0, %r2;": "global_stride is of b64",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d3], [%r3], 64;": "has 128 bytes",
}  # fmt: skip


@pytest.mark.parametrize("code", REFUSED)
def test_what_is_not_modelled_is_refused(code: str) -> None:
    with pytest.raises(RuntimeError, match="simulator: ") as refusal:
        run(f"    @%p0 {code}" if "cp_fenceproxy" not in code else f"    {code}")
    assert REFUSED[code] in str(refusal.value)


def test_targets_without_it() -> None:
    code = "    tensormap.replace.tile.rank.global.b1024.b32 [%in], 1;"
    text = kernel(code).replace(header(code), header("", "sm_90"))
    with pytest.raises(RuntimeError, match=r"sm_90 has no tensormap\.replace: tensormap needs sm_90a"):
        run_kernel(text, torch.zeros(1, dtype=torch.int32))


def test_the_right_text_has_no_hazard_by_the_manual() -> None:
    for seed in SCHEDULES:
        report, out, source = run(RIGHT, seed)
        assert not report.hazards
        assert torch.equal(out, boxed(source, BOX_ROWS, 1))
