"""Steps behind products whose scales entered the instruction, dense and of experts, against FP64: what they meet is a
warp's sums as they are, without promoted ones."""

from __future__ import annotations

import pytest
import torch
from devices import SCHEDULES, on_simulator
from inputs import GuardedOutput
from matrix import Quantised, Scaling, packed, quantised
from scale_forms import Form, laid_out, written

import deep_gemm
from deep_gemm import epilogue
from deep_gemm._gates import gated_product

M, N, K, EXPERTS, ALIGNMENT = 40, 512, 272, 2, 64
KINDS = {  # elements, K of a scale; the functions' names
    "fp8": ("e4m3", 32, "e4m3", 32, "fp8"),
    "fp8-mxfp4": ("e4m3", 128, "e2m1r", 32, "fp8_fp4"),
    "mxfp4": ("e2m1r", 32, "e2m1r", 32, "fp4"),
    "nvfp4": ("e2m1r", 16, "e2m1r", 16, "fp4"),
}
STEPS = ["weights of rows", "a factor and weights", "gate", "gate, quantised"]


def given(parts: list[Quantised], element: str, scaling: Scaling, joined: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Side by side along rows, or as one matrix each."""
    form = Form(scaling.element if scaling.element == "e4m3" else "e8m0", "rows")
    data = [packed(part.data) if element == "e2m1r" else part.data for part in parts]
    scales = [written(part.scales, form) for part in parts]
    put = torch.cat if joined else torch.stack
    if element == "e4m3":
        return put([x.view(torch.uint8) for x in data]).view(torch.float8_e4m3fn), laid_out(put(scales), form)
    return put(data), laid_out(put(scales), form)


def values(d: torch.Tensor, s: torch.Tensor | None) -> torch.Tensor:
    return d.double() if s is None else d.double() * s.double().repeat_interleave(128, -1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("grouping", ["dense", "contiguous", "psum", "masked"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", on_simulator(*SCHEDULES, arch="sm120"), indirect=True)
def test_steps(device, kind, grouping, steps) -> None:
    element_a, k_a, element_b, k_b, name = KINDS[kind]
    kinds = [Scaling("e4m3" if k == 16 else "ue8m0", 1, k) for k in (k_a, k_b)]
    seed = torch.Generator().manual_seed(7)
    experts = 1 if grouping == "dense" else EXPERTS
    rows = ALIGNMENT if grouping in ("contiguous", "psum") else M
    a = [quantised(element_a, kinds[0], rows, K, seed) for _ in range(experts)]
    b = [quantised(element_b, kinds[1], N, K, seed) for _ in range(experts)]
    masked, gated, scaled = grouping == "masked", steps.startswith("gate"), steps.endswith("quantised")
    lead, columns = (experts, rows) if masked else (experts * rows,), N // 2 if gated else N
    weights = torch.rand(lead, generator=seed)
    gate = epilogue.SwiGLU(limit=7.0)
    step = {
        "weights of rows": epilogue.RowScale(weights),
        "a factor and weights": epilogue.Chain(epilogue.Alpha(-0.75), epilogue.RowScale(weights)),
    }.get(steps, gate)
    d = GuardedOutput((*lead, columns), torch.float8_e4m3fn if scaled else torch.float32, device)
    s = torch.zeros((*lead[:-1], columns // 128, lead[-1])).mT if scaled else None

    call = f"{name}_gemm_nt" if grouping == "dense" else f"m_grouped_{name}_gemm_nt_contiguous"
    more = {"recipe": (1, 1, k_a)} if name == "fp4" else {"recipe_a": (1, k_a), "recipe_b": (1, k_b)}
    count = M
    if masked:
        call = call.replace("contiguous", "masked")
        more |= {"masked_m": torch.full((experts,), M, dtype=torch.int32), "expected_m": M}
    elif grouping == "contiguous":
        of_row = torch.arange(experts, dtype=torch.int32).repeat_interleave(rows)
        of_row[torch.arange(experts * rows) % rows >= M] = -1
        more |= {"grouped_layout": of_row}
    elif grouping == "psum":
        ends = torch.arange(experts, dtype=torch.int32) * rows + M
        more |= {"grouped_layout": ends, "use_psum_layout": True}
    out = d.tensor if s is None else (d.tensor, s)
    deep_gemm.set_mk_alignment_for_contiguous_layout(ALIGNMENT)
    try:
        operands = given(a, element_a, kinds[0], not masked), given(b, element_b, kinds[1], grouping == "dense")
        getattr(deep_gemm, call)(*operands, out, **more, epilogue=step)
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(128)
    d.check(complete=False)
    found = values(d.tensor, s).view(experts, rows, columns)[:, :count]
    weights = weights.double().view(experts, rows, 1)[:, :count]
    for expert in range(experts):
        exact = a[expert].exact[:count] @ b[expert].exact.T
        size = a[expert].exact[:count].abs() @ b[expert].exact.T.abs()
        if gated:
            expected = gated_product(exact, gate.record)
            allowed = 1e-5 * (1 + expected.abs() + size.amax(-1, keepdim=True))
            allowed += 2**-4 * expected.abs() + 2**-8 * expected.abs().amax(-1, keepdim=True) / 448 if scaled else 0
        else:
            expected = exact * weights[expert] * (-0.75 if "factor" in steps else 1)
            allowed = 2e-6 * size
        assert ((found[expert] - expected).abs() <= allowed).all()
        assert found[expert].abs().max() > 0
