"""`SwiGLU` and `GeGLU`: one column of D of two of the product, wherever the rows of B lie."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from batched_inputs import bf16_batch, fp8_batch
from candidates import can_serve, candidates, forced_tile, least_rows
from devices import EACH_ARCH, TARGETS
from gates import GATES, LAYOUTS, assert_close, expected, operands
from grouped_inputs import alignment_of, contiguous, masked
from inputs import GuardedOutput, random_values

import deep_gemm
from deep_gemm.epilogue import Alpha, Chain, RowScale, SwiGLU

HAVE_GATES = EACH_ARCH


@pytest.mark.sampled(12)
@pytest.mark.parametrize("device", HAVE_GATES, indirect=True)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("output", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pair", ["bf16", "fp16", "fp8", "fp8 rows"])
@pytest.mark.parametrize(
    "sizes",
    [(1, 8, 64), (5, 3, 64), (7, 74, 208), (129, 136, 256), (64, 128, 128), (200, 381, 512), (300, 256, 1024)],
)
def test_dense(device, gate, layout, output, pair, sizes) -> None:
    m, columns, k = sizes
    if pair == "fp8" and layout == "halves":
        columns = math.ceil(columns / 128) * 128
    if pair == "fp16" and output is torch.bfloat16:
        output = torch.float16
    a, b, call = operands(pair, m, 2 * columns, k, device)
    product = torch.empty(m, 2 * columns, device=device)
    call(a, b, product)
    d = GuardedOutput((m, columns), output, device)
    call(a, b, d.tensor, epilogue=GATES[gate][0](layout=layout))
    d.check()
    assert_close(d.tensor, expected(product, layout, gate))


@pytest.mark.parametrize("device", HAVE_GATES, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_against_fp64_alone(device, layout) -> None:
    a, b, call = operands("bf16", 33, 46, 72, device)
    d = GuardedOutput((33, 23), torch.float32, device)
    call(a, b, d.tensor, epilogue=SwiGLU(layout=layout))
    d.check()
    assert torch.allclose(d.tensor.double(), expected(a.double() @ b.double().T, layout), rtol=1e-5, atol=1e-5)


def in_eights(rows: torch.Tensor) -> torch.Tensor:
    """8 gates and their 8 ups in turn, of all gates and then all ups."""
    return rows.unflatten(-2, (2, -1, 8)).transpose(-4, -3).flatten(-4, -2)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", [each for each in HAVE_GATES if "sm100" not in str(each)], indirect=True)
@pytest.mark.parametrize("pair", ["bf16", "fp8", "fp8 rows"])
@pytest.mark.parametrize("output", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(1, 128, 256), (7, 256, 208), (129, 384, 256), (300, 640, 384)])
def test_eights_are_halves_in_another_order(device, pair, output, sizes) -> None:
    """To the bit; scales of blocks stay where they are, those of rows go with them."""
    m, columns, k = sizes
    a, b, call = operands(pair, m, 2 * columns, k, device)
    other = b if pair == "bf16" else b[0].view(torch.uint8)
    moved: Any = in_eights(other).contiguous().view(b.dtype if pair == "bf16" else torch.float8_e4m3fn)
    if pair != "bf16":
        moved = moved, (in_eights(b[1]) if pair == "fp8 rows" else b[1])
    c = random_values((m, 2 * columns), device, 5) if output is torch.float32 else None
    found = []
    deep_gemm.set_batch_invariant(True)
    try:
        for weights, layout, added in (
            (b, "halves", c),
            (moved, "eights", None if c is None else in_eights(c.T).T.contiguous()),
        ):
            d = GuardedOutput((m, columns), output, device)
            call(a, weights, d.tensor, added, epilogue=SwiGLU(layout=layout))
            d.check()
            found.append(d.tensor)
    finally:
        deep_gemm.set_batch_invariant(False)
    assert torch.equal(*found)


@pytest.mark.parametrize("device", HAVE_GATES, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pair", ["bf16", "fp8"])
@pytest.mark.parametrize("row_stride", [128, 131])
def test_alpha_and_c_come_before_it_and_row_weights_behind(device, layout, pair, row_stride) -> None:
    m, columns, k = 70, 128, 128
    if pair == "bf16" and row_stride != columns:
        columns = 125
    a, b, call = operands(pair, m, 2 * columns, k, device)
    c, weights = random_values((m, 2 * columns), device, 5), random_values((m,), device, 6)
    product = torch.empty_like(c)
    call(a, b, product)
    d = GuardedOutput((m, columns), torch.float32, device, row_stride=row_stride)
    steps = Chain(Alpha(0.5), SwiGLU(layout=layout), RowScale(weights))
    call(a, b, d.tensor, c, epilogue=steps)
    d.check()
    wanted = expected(c.double() + 0.5 * product.double(), layout) * weights.double().unsqueeze(-1)
    assert torch.allclose(d.tensor.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", HAVE_GATES, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pair", ["bf16", "fp8"])
@pytest.mark.parametrize("output", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
@pytest.mark.parametrize("alignment", [128, 16])
def test_experts(device, layout, pair, output, grouping, alignment) -> None:
    """Rows of padding are zeros, rows past a count stay as they are; experts may be empty."""
    counts, n, k = [5, 0, 130, 16], 256, 256
    with alignment_of(alignment):
        if grouping == "masked":
            case: Any = masked(counts, 136, n, k, device)
            where = (case.counts, 40)
            function = "nt_masked"
            lead = case.a.data.shape[:-1]
        else:
            case = contiguous(counts, n, k, device, alignment)
            where = (case.layout(grouping == "psum"), {"use_psum_layout": grouping == "psum"})
            function = "nt_contiguous"
            lead = (case.m,)
        a, b = (case.a, case.b) if pair == "fp8" else (case.a.data.float().bfloat16(), case.b.data.float().bfloat16())
        a = (a[0], 0.125 * a[1]) if pair == "fp8" else a * 2.0**-15
        call = getattr(deep_gemm, f"m_grouped_{pair}_gemm_{function}")

        def run(d: torch.Tensor, **more: Any) -> None:
            *places, last = where
            call(a, b, d, *places, **last, **more) if isinstance(last, dict) else call(a, b, d, *where, **more)

        product = torch.full((*lead, n), float("nan"), device=device)
        run(product)
        d = GuardedOutput((*lead, n // 2), output, device)
        run(d.tensor, epilogue=SwiGLU(layout=layout))
    d.check(complete=False)
    wanted = expected(product, layout)
    known = ~wanted.isnan()
    assert known.any()
    assert_close(torch.where(known, d.tensor, 0), torch.where(known, wanted, 0))
    assert torch.equal(d.tensor.isnan(), wanted.isnan()) or output is not torch.float32


TILED = (150, 512, 768)  # M, N, K
FIELDS: dict[str, dict[str, dict[str, int]]] = {
    "sm90": {"bf16": {"bf16": 1}, "fp8": {"batch_invariant": 1}, "fp8 rows": {"batch_invariant": 1, "per_row_b": 1}},
    "sm80": {"bf16": {"bf16": 1}, "fp8": {}},
    "sm100": {
        "bf16": {"bf16": 1},
        "fp8": {"packs_scales_a": 1, "packs_scales_b": 1},
        "fp8 rows": {"packs_scales_a": 1, "packs_scales_b": 1, "per_row_b": 1},
    },
    "sm100fp32": {"fp8": {"fp32_scales": 1}, "fp8 rows": {"fp32_scales": 1, "per_row_b": 1}},
}
TILES = [
    pytest.param(
        f"{arch}-any",
        pair,
        candidate,
        id=f"{arch}-{pair}-{'swapped-' * candidate.swapped}{candidate.rows}x{candidate.cols}"
        f"-{'x'.join(map(str, candidate.cluster_shape))}-{candidate.preconvert}",
    )
    for arch, pairs in FIELDS.items()
    for pair, fields in pairs.items()
    for candidate in candidates(*TILED, target=TARGETS[arch], gate=1, **fields)
    if can_serve(candidate) and candidate.cluster_shape[2] * candidate.k_warpgroups == 1
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("missing", [0, 10])
@pytest.mark.parametrize(("device", "pair", "candidate"), TILES, indirect=["device"])
def test_tiles_agree_bit_for_bit(device, layout, missing, candidate, pair) -> None:
    """Where none splits K; also where the last gates and ups are not 8."""
    m, n, k = TILED
    if missing:
        n, layout = n - missing, "interleaved" if pair == "fp8" else layout
    a, b, call = operands(pair, m, n, k, device)
    product = torch.empty(m, n, device=device)
    call(a, b, product)
    results = []
    deep_gemm.set_batch_invariant(True)
    try:
        for swapped, rows, cols in (
            (False, least_rows(device), 64),
            (candidate.swapped, candidate.rows, candidate.cols),
        ):
            d = GuardedOutput((m, n // 2), torch.bfloat16, device)
            cluster = candidate.cluster_shape if results else (1, 1, 1)
            preconvert = candidate.preconvert if results else "none"
            with forced_tile(device, (m, n, k), swapped, rows, cols, cluster, preconvert=preconvert):
                call(a, b, d.tensor, epilogue=SwiGLU(layout=layout))
            d.check()
            results.append(d.tensor)
    finally:
        deep_gemm.set_batch_invariant(False)
    assert_close(results[0], expected(product, layout))
    assert torch.equal(*results)


@pytest.mark.parametrize("with_c", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_k(with_c, layout) -> None:
    a, b = torch.empty(3, 0).bfloat16(), torch.empty(32, 0).bfloat16()
    c = random_values((3, 32), "cpu", 1) if with_c else None
    d = GuardedOutput((3, 16), torch.float32, "cpu")
    deep_gemm.bf16_gemm_nt(a, b, d.tensor, c, epilogue=SwiGLU(layout=layout))
    d.check()
    assert_close(d.tensor, expected(torch.zeros(3, 32) if c is None else c, layout))
    of_batch = torch.full((3, 1, 16), float("nan"))
    deep_gemm.einsum(
        "bhr,hdr->bhd", a[:, None], b[None], of_batch, None if c is None else c[:, None], epilogue=SwiGLU(layout=layout)
    )
    assert torch.equal(of_batch[:, 0], d.tensor)


def test_nan_goes_through_limits() -> None:
    a, b = torch.ones(2, 64).bfloat16(), torch.ones(32, 64).bfloat16()
    b[3], b[20] = float("nan"), float("nan")
    d = torch.empty(2, 16)
    deep_gemm.bf16_gemm_nt(a, b, d, epilogue=SwiGLU(limit=7.0))
    assert d.isnan().nonzero().tolist() == [[0, 3], [0, 4], [1, 3], [1, 4]]
    wanted = 7 * torch.sigmoid(torch.tensor(7.0)) * 7
    assert torch.allclose(d[~d.isnan()], wanted)


def test_traced_programs_have_it() -> None:
    a, b = (0.2 * random_values((rows, 64), "cpu", rows).bfloat16() for rows in (5, 32))

    def run(a: torch.Tensor) -> torch.Tensor:
        d = torch.zeros(5, 16)
        deep_gemm.bf16_gemm_nt(a, b, d, epilogue=SwiGLU(7.0, 1.702, 1.0, "interleaved"))
        return d

    traced = torch.fx.experimental.proxy_tensor.make_fx(run)(a)
    other = -a
    assert torch.equal(traced(other), run(other))
    assert not torch.equal(traced(other), run(a))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", HAVE_GATES, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pair", ["bf16", "fp8", "fp8 rows"])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("sizes", [(3, 1, 8, 64), (2, 70, 133, 200), (3, 130, 256, 512)])
def test_batched(device, layout, pair, added, sizes) -> None:
    batch, m, columns, k = sizes
    if pair == "fp8":
        columns = math.ceil(columns / 128) * 128
    if pair == "bf16":
        product = bf16_batch("bhr,hdr->bhd", batch, m, 2 * columns, k, device)
    else:
        product = fp8_batch("bhr,hdr->bhd", batch, m, 2 * columns, k // 16 * 16, device, per_row_b=pair == "fp8 rows")
    recipe = {"recipe": (1, 1, 128)} if pair == "fp8 rows" else {}
    c = random_values((m, batch, 2 * columns), device, 5) if added else None
    wide = torch.empty(m, batch, 2 * columns, device=device)
    product.run(wide, c=c, **recipe)
    d = GuardedOutput((m, batch, columns), torch.float32, device)
    product.run(d.tensor, c=c, **recipe, epilogue=GATES["gpt-oss"][0](layout=layout))
    d.check()
    wanted = expected(wide, layout, "gpt-oss")
    assert (d.tensor.double() - wanted).abs().max() <= 2e-5 * (1 + wide.abs().max()) ** 2


@pytest.mark.parametrize("device", HAVE_GATES, indirect=True)
@pytest.mark.parametrize("gate", GATES)
def test_the_same_bits_as_the_quantise_kernels(device, gate) -> None:
    """Sums of small integers, exact in any order: the FP32 result of the product, and what is made of the same sums."""
    a, b = (random_values(shape, device, 7).mul(3).round().bfloat16() for shape in ((9, 64), (256, 64)))
    product, d = torch.empty(9, 256, device=device), torch.empty(9, 128, device=device)
    deep_gemm.bf16_gemm_nt(a, b, product)
    deep_gemm.bf16_gemm_nt(a, b, d, epilogue=GATES[gate][0](layout="halves"))
    q, s = deep_gemm.quantize.gated_fp8(product, GATES[gate][0](layout="halves"))
    wanted_q, wanted_s = deep_gemm.quantize.fp8(d)
    assert torch.equal(q.view(torch.uint8), wanted_q.view(torch.uint8))
    assert torch.equal(s, wanted_s)
