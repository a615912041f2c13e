"""`FP8CastWithClamp`: to the bit deep_gemm.utils of the clamped BF16 result, and how many values were clamped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from candidates import forced_tile
from devices import EACH_ARCH, ONE_OF_EACH_ARCH
from grouped_inputs import alignment_of
from inputs import GuardedOutput, random_values
from quantised_output import ALIGNMENT, SCALES, Product, QuantisedOutput, dense, of_experts, operands

import deep_gemm
from deep_gemm.epilogue import Alpha, Chain, FP8CastWithClamp, RowScale, SwiGLU
from deep_gemm.utils import per_token_cast_to_fp8

pytestmark = pytest.mark.usefixtures("batch_invariant")


def counter(device: torch.device) -> torch.Tensor:
    return torch.full((1,), 77, dtype=torch.int32, device=device).view(torch.uint32)


def check(product: Any, scales: str, device: torch.device, *steps: Any) -> None:
    wide = torch.full(product.shape, float("nan"), device=device)
    product.call(wide, epilogue=Chain(*steps))
    rounded = wide.bfloat16().float()
    bound = rounded[product.written].abs().flatten().sort().values[-rounded[product.written].numel() // 5].item()
    out, count = QuantisedOutput(product.shape, scales, device), counter(device)
    product.call(out.pair[0], epilogue=Chain(*steps, FP8CastWithClamp(out.pair[1], bound, count)))
    out.check(rounded.clamp(-bound, bound), product.written, product.padding)
    beyond = (rounded[product.written].abs() > bound).sum().item()
    assert beyond > 0
    assert count.view(torch.int32).item() == beyond
    out = QuantisedOutput(product.shape, scales, device)
    product.call(out.pair[0], epilogue=Chain(*steps, FP8CastWithClamp(out.pair[1], None, count)))
    out.check(rounded, product.written, product.padding)
    assert count.view(torch.int32).item() == 0


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("stem", ["fp8", "bf16"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize(("m", "n"), [(1, 8), (7, 120), (129, 136), (64, 264)])
def test_dense(device, stem, scales, m, n) -> None:
    check(dense(stem, device, m, n), scales, device)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("stem", ["fp8", "bf16"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
def test_experts(device, stem, scales, grouping) -> None:
    with alignment_of(ALIGNMENT):
        check(of_experts(stem, grouping, device, 136), scales, device)


@pytest.mark.parametrize("schedule", ["lazy", "eager", "random"])
def test_experts_whose_rows_begin_behind_padding(schedule) -> None:
    """Hopper's tiles of 128 rows then lie off their grid: no row, scale or count is another expert's."""
    device, n, k = torch.device("cpu"), 128, 256
    experts = torch.full((512,), -1, dtype=torch.int32)
    for expert, (row, end) in enumerate([(64, 128), (128, 256), (320, 384), (384, 512)]):
        experts[row:end] = expert
    a, b = operands("fp8", device, (512, k), (4, n, k))

    def call(d: Any, **more: Any) -> None:
        height = 64 if d.dtype == torch.float32 else 128  # what it is compared with lies on the grid
        with forced_tile(device, (512, n, k), False, height, 128):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, experts, **more)

    with deep_gemm.simulator.options(target="sm_90a", schedule=schedule), alignment_of(128):
        check(Product((512, n), call, experts >= -1, experts < 0), "fp32", device)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_behind_the_other_steps(device) -> None:
    check(dense("bf16", device, 40, 136), "fp32", device, Alpha(-0.3), RowScale(random_values((40,), device, 3)))


def test_behind_a_gate() -> None:
    with deep_gemm.simulator.options(target="sm_90a"):
        check(dense("bf16", torch.device("cpu"), 40, 512, columns=256), "words of 32", torch.device("cpu"), SwiGLU())


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(("stem", "n"), [("fp8", 256), ("bf16", 256), ("fp8", 128)])
def test_the_public_form_of_heads(device, stem, n) -> None:
    """[b, h, n] with scales [b, h * n / 128]: what the next product takes of d.flatten(1, 2)."""
    b, h = 9, 3
    left, right = operands(stem, device, (b, h, 256), (h, n, 256))
    function = deep_gemm.fp8_einsum if stem == "fp8" else deep_gemm.einsum
    wide = torch.empty(b, h, n, device=device)
    function("bhr,hdr->bhd", left, right, wide)
    rounded = wide.bfloat16().flatten(1, 2)
    for clamp in (None, 5.1):
        q = torch.empty(b, h, n, device=device, dtype=torch.float8_e4m3fn)
        sf, count = GuardedOutput((h * n // 128, 12), torch.int32, device), counter(device)
        function("bhr,hdr->bhd", left, right, q, epilogue=FP8CastWithClamp(sf.tensor[:, :b].T, clamp, count))
        bound = float("inf") if clamp is None else torch.tensor(clamp).bfloat16().item()
        wanted_q, wanted_sf = per_token_cast_to_fp8(
            rounded.clamp(-bound, bound), use_ue8m0=True, gran_k=32, use_packed_ue8m0=True
        )
        assert torch.equal(q.flatten(1, 2).view(torch.uint8), wanted_q.view(torch.uint8))
        assert torch.equal(sf.tensor[:, :b].T, wanted_sf)
        assert count.view(torch.int32).item() == (rounded.float().abs() > bound).sum()
    if stem == "fp8":
        again, scales = torch.empty_like(q), torch.empty(h * n // 128, 12, dtype=torch.int32, device=device)[:, :b].T
        function("bhr,hdr->bhd", left, right, (again, scales))
        wanted_q, wanted_sf = per_token_cast_to_fp8(rounded, use_ue8m0=True, gran_k=32, use_packed_ue8m0=True)
        assert torch.equal(again.flatten(1, 2).view(torch.uint8), wanted_q.view(torch.uint8))
        assert torch.equal(scales, wanted_sf)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_nan_is_counted(device) -> None:
    a, b = torch.ones(16, 64, device=device).bfloat16(), torch.ones(136, 64, device=device).bfloat16()
    b[3], b[5], b[130] = float("nan"), float("inf"), 0.5
    out, count = QuantisedOutput((16, 136), "fp32", device), counter(device)
    deep_gemm.bf16_gemm_nt(a, b, out.pair[0], epilogue=FP8CastWithClamp(out.pair[1], 40.0, count))
    assert count.view(torch.int32).item() == 16 * 135  # all but the column of 32s
    q = out.pair[0].float()
    assert q[:, 3].isnan().all()
    assert (q[:, 128:] * out.pair[1][:, 1:])[0].tolist() == pytest.approx([40.0, 40.0, 32.0] + [40.0] * 5, rel=0.07)


def test_what_is_refused() -> None:
    a, b = random_values((16, 64), "cpu", 1).bfloat16(), random_values((256, 64), "cpu", 2).bfloat16()
    out, count = QuantisedOutput((16, 256), "fp32", torch.device("cpu")), counter(torch.device("cpu"))
    q, s = out.pair

    def rejected(kind: type[Exception], words: str, d: Any, *cast: Any) -> None:
        with pytest.raises(kind, match=words):
            deep_gemm.bf16_gemm_nt(a, b, d, epilogue=FP8CastWithClamp(*cast))

    rejected(ValueError, "d must be a tensor where FP8CastWithClamp has its scales", (q, s), s)
    rejected(TypeError, "d must be float8_e4m3fn", torch.full((16, 256), 7, dtype=torch.int8), s)
    rejected(ValueError, "clamp_value must be None or a number above 0", q, s, 0.0)
    rejected(ValueError, "clamp_value must be None or a number above 0", q, s, float("nan"))
    rejected(TypeError, "clamp_value must be a number, got 'x'", q, s, "x")
    rejected(TypeError, "clamped_count must be a uint32 tensor of one element", q, s, 1.0, torch.ones(2).int())
    rejected(TypeError, "sfd must be a tensor, got None", q, None)
    rejected(ValueError, "d's scales must have d's rows", q, torch.ones(2, 20).T, 1.0, count)
    with pytest.raises(ValueError, match="c must be None where d has scales"):
        deep_gemm.bf16_gemm_nt(a, b, q, q, epilogue=FP8CastWithClamp(s, 1.0, count))
    with pytest.raises(TypeError, match=r"d must be a tensor, or a pair \(tensor, scales\)"):
        deep_gemm.bf16_gemm_nt(a, b, (q, s, count.view(torch.int32)))
    out.q.assert_untouched()
    out.s.assert_untouched()
    assert count.view(torch.int32).item() == 77


@pytest.mark.parametrize("bound", [0.5, None])
def test_traced(bound) -> None:
    """The counter is a tensor that the operator writes."""
    cpu = torch.device("cpu")
    a, b = operands("bf16", cpu, (16, 64), (256, 64))

    def call(q: torch.Tensor, s: torch.Tensor, count: torch.Tensor) -> None:
        deep_gemm.bf16_gemm_nt(a, b, q, epilogue=Chain(Alpha(0.5), FP8CastWithClamp(s, bound, count)))

    results = []
    for run in (call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        out, count = QuantisedOutput((16, 256), "fp32", cpu), counter(cpu)
        run(*out.pair, count)
        results.append([*(part.contiguous().view(torch.uint8) for part in out.pair), count.view(torch.int32)])
    assert all(map(torch.equal, *results))
    assert (results[0][-1].item() > 0) == (bound is not None)
