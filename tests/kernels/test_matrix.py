"""The test matrix: every pair of formats, grouping, scaling and output that the pair table has, against FP64."""

from __future__ import annotations

from dataclasses import replace

import matrix
import pytest
import torch
from devices import FEW
from grouped_inputs import alignment_of
from inputs import GuardedOutput
from matrix import DTYPES, Case, Problem, Quantised, function, quantised, stacked, values

import deep_gemm

CASES = list(matrix.cases())
COUNTS = [5, 0, 130, 1]  # experts' rows
# Relative to sum |a||b|: of Hopper's FP8, whose tensor cores keep about 13 bits; of others; of the simulator.
TOLERANCES = {("cuda", "e4m3"): 6e-4, ("cuda", "other"): 4e-5, ("cpu", "e4m3"): 1e-6, ("cpu", "other"): 2e-6}
ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-23}


def check(case: Case, d: torch.Tensor, expected: torch.Tensor, magnitude: torch.Tensor, c: torch.Tensor | None) -> None:
    if c is not None:
        expected, magnitude = expected + c.double().cpu(), magnitude + c.double().cpu().abs()
    found = d.double().cpu()
    if d.dtype == torch.int32:
        assert torch.equal(found, expected)
        return
    element = "e4m3" if case.pair.a == "e4m3" else "other"
    allowed = TOLERANCES[d.device.type, element] * magnitude + ROUNDING[d.dtype] * expected.abs()
    wrong = ((found - expected).abs() > allowed) | ~found.isfinite()
    assert not wrong.any(), f"{case}: {wrong.sum().item()} of {wrong.numel()} elements are wrong"


def output(case: Case, shape: tuple[int, ...], device: torch.device, generator: torch.Generator):
    """D, guarded, and C, which may be D."""
    d = GuardedOutput(shape, DTYPES[case.output], device)
    if case.added == "nothing":
        return d, None, None
    c = (torch.randn(shape, generator=generator) * 10).to(DTYPES[case.output]).to(device)
    if case.added == "d":
        d.tensor.copy_(c)
    return d, c, d.tensor if case.added == "d" else c


def run_dense(case: Case, device: torch.device, m: int, n: int, k: int, generator: torch.Generator) -> None:
    a = quantised(case.pair.a, case.scaling_a, m, k, generator)
    b = quantised(case.pair.b, case.scaling_b, n, k, generator)
    d, c, given = output(case, (m, n), device, generator)
    recipe = {}
    if case.scaling_b is not None and case.scaling_b.k > 0:
        recipe = {"recipe": (case.scaling_a.rows, case.scaling_b.rows, case.scaling_b.k)}
    function(case, "{}_gemm_nt")(a.to(device), b.to(device), d.tensor, given, **recipe)
    d.check()
    check(case, d.tensor, *Problem([a], [b]).expected(0), c)


def experts(case: Case, n: int, k: int, heights: list[int], generator: torch.Generator) -> Problem:
    """Rows past an expert's count are not finite, or huge."""
    problem = Problem()
    for count, height in zip(COUNTS, heights, strict=True):
        a = quantised(case.pair.a, case.scaling_a, height, k, generator)
        a.data[count:] = float("nan") if a.data.is_floating_point() else 127
        problem.a.append(replace(a, exact=a.exact[:count]))
        problem.b.append(quantised(case.pair.b, case.scaling_b, n, k, generator))
    return problem


def grouped_recipe(case: Case) -> dict[str, tuple[int, int, int]]:
    return {} if case.scaling_b is None else {"recipe": (1, case.scaling_b.rows, case.scaling_b.k)}


def run_masked(case: Case, device: torch.device, n: int, k: int, generator: torch.Generator) -> None:
    problem = experts(case, n, k, [136] * len(COUNTS), generator)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    d, _, _ = output(case, (len(COUNTS), 136, n), device, generator)
    call = function(case, "m_grouped_{}_gemm_nt_masked")
    call(stacked(problem.a, device), stacked(problem.b, device), d.tensor, counts, 40, **grouped_recipe(case))
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            check(case, d.tensor[group, :count], *problem.expected(group), None)


def joined(operands: list[Quantised], device: torch.device):
    """One matrix of all rows."""
    data = torch.cat([x.data for x in operands]).to(device)
    if operands[0].scales is None:
        return data
    return data, torch.cat([x.scales for x in operands if x.scales is not None]).to(device)


def run_contiguous(case: Case, device: torch.device, n: int, k: int, generator: torch.Generator) -> None:
    psum = case.grouping == "m_psum"
    heights = [-(-count // matrix.ALIGNMENT) * matrix.ALIGNMENT for count in COUNTS]
    problem = experts(case, n, k, heights, generator)
    starts = [sum(heights[:i]) for i in range(len(heights))]
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    else:
        layout = torch.full((sum(heights),), -1, dtype=torch.int32)
        for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
            layout[start : start + count] = expert
    d, _, _ = output(case, (sum(heights), n), device, generator)
    call = function(case, "m_grouped_{}_gemm_nt_contiguous")
    with alignment_of(matrix.ALIGNMENT):
        call(
            joined(problem.a, device),
            stacked(problem.b, device),
            d.tensor,
            layout.to(device),
            use_psum_layout=psum,
            **grouped_recipe(case),
        )
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        if count:
            check(case, d.tensor[start : start + count], *problem.expected(expert), None)
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"


def run_k_grouped(case: Case, device: torch.device, m: int, n: int, generator: torch.Generator) -> None:
    ks = [128, 0, 256]
    problem = Problem()
    for k in ks:
        problem.a.append(quantised(case.pair.a, case.scaling_a, m, k, generator))
        problem.b.append(quantised(case.pair.b, case.scaling_b, n, k, generator))
    d, c, given = output(case, (len(ks), m, n), device, generator)
    sizes = torch.tensor(ks, dtype=torch.int32, device=device)

    def lines(operands: list[Quantised]):
        """[sum of K, rows]."""
        data = torch.cat([x.data.T for x in operands]).contiguous().to(device)
        if operands[0].scales is None:
            return data
        return data, torch.cat([x.scales.T for x in operands if x.scales is not None]).contiguous().to(device)

    call = function(case, "k_grouped_{}_gemm_tn_contiguous")
    call(lines(problem.a), lines(problem.b), d.tensor, ks, sizes, c=given)
    d.check()
    for group in range(len(ks)):
        check(case, d.tensor[group], *problem.expected(group), None if c is None else c[group])


def run_batched(case: Case, device: torch.device, m: int, n: int, k: int, generator: torch.Generator) -> None:
    """Heads of all tokens: D's rows of one head lie between those of the others."""
    problem = Problem()
    for _ in range(3):
        problem.a.append(quantised(case.pair.a, case.scaling_a, m, k, generator))
        problem.b.append(quantised(case.pair.b, case.scaling_b, n, k, generator))
    d, c, given = output(case, (m, 3, n), device, generator)
    a, b = stacked(problem.a, device), stacked(problem.b, device)
    if case.scaling_b is None:
        deep_gemm.einsum("bhr,hdr->bhd", a.transpose(0, 1), b, d.tensor, given)
    else:
        tokens = tuple(part.transpose(0, 1) for part in a)
        recipe = (case.scaling_a.rows, case.scaling_b.rows, case.scaling_b.k)
        deep_gemm.fp8_einsum("bhr,hdr->bhd", tokens, b, d.tensor, given, recipe)
    d.check()
    for head in range(3):
        check(case, d.tensor[:, head], *problem.expected(head), None if c is None else c[:, head])


def run_batch_sum(case: Case, device: torch.device, m: int, n: int, k: int, generator: torch.Generator) -> None:
    problem = Problem()
    for _ in range(3):
        problem.a.append(quantised(case.pair.a, case.scaling_a, m, k, generator))
        problem.b.append(quantised(case.pair.b, case.scaling_b, n, k, generator))
    d, c, given = output(case, (m, n), device, generator)
    deep_gemm.einsum("bmk,bnk->mn", stacked(problem.a, device), stacked(problem.b, device), d.tensor, given)
    d.check()
    parts = [problem.expected(group) for group in range(3)]
    check(case, d.tensor, sum(part[0] for part in parts), sum(part[1] for part in parts), c)


def run_case(case: Case, device: torch.device, size: tuple[int, int, int]) -> None:
    m, n, k = size
    generator = torch.Generator().manual_seed(CASES.index(case) * 10 + m)
    if case.grouping == "dense":
        run_dense(case, device, m, n, k, generator)
    elif case.grouping == "masked":
        run_masked(case, device, n, k, generator)
    elif case.grouping == "batched":
        run_batched(case, device, m, n, k, generator)
    elif case.grouping == "batch_sum":
        run_batch_sum(case, device, m, n, k, generator)
    elif case.grouping == "k_contiguous":
        run_k_grouped(case, device, m, n, generator)
    else:
        run_contiguous(case, device, n, k, generator)


@pytest.mark.sampled(40)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("size", [(1, 136, 272), (7, 24, 640), (129, 280, 144)], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_pair_table_has_is_multiplied(device, case, size) -> None:
    run_case(case, device, size)


def test_what_the_pair_table_has_not_is_refused() -> None:
    """Operands of two rows of the table, or of none."""
    listed = {(pair.a, pair.b) for pair in matrix.pairs() if not pair.scalings_a}
    generator = torch.Generator().manual_seed(0)
    for a in DTYPES:
        for b in DTYPES:
            if (a, b) in listed or "s32" in (a, b):
                continue
            d = GuardedOutput((8, 16), torch.float32, "cpu")
            with pytest.raises(TypeError, match="must be"):
                deep_gemm.bf16_gemm_nt(values(a, (8, 64), generator), values(b, (16, 64), generator), d.tensor)
            d.assert_untouched()
