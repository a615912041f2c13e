"""The test matrix: every pair of formats, grouping, scaling and output that the pair table has, against FP64."""

from __future__ import annotations

from binascii import crc32
from dataclasses import replace
from itertools import product

import matrix
import pytest
import torch
from devices import EACH_ARCH, SCHEDULES, devices_of
from grouped_inputs import alignment_of
from inputs import GuardedOutput
from matrix import DTYPES, Call, Case, Problem, drawn_call, settings_of, tolerance, values
from reference import MIN_ROUNDING, ROUNDING
from scale_forms import draw

import deep_gemm

COUNTS = [5, 0, 130, 1]  # experts' rows
SIZES = [(1, 136, 272), (7, 24, 640), (129, 280, 144)]
LARGEST_CODE = {torch.uint8: 15}  # of FP4


def check(case: Case, d: torch.Tensor, expected: torch.Tensor, magnitude: torch.Tensor, c: torch.Tensor | None) -> None:
    if c is not None:
        expected, magnitude = expected + c.double().cpu(), magnitude + c.double().cpu().abs()
    found = d.double().cpu()
    if d.dtype == torch.int32:
        assert torch.equal(found, expected)
        return
    rounding = (ROUNDING[d.dtype] * expected.abs()).clamp(min=MIN_ROUNDING[d.dtype])
    wrong = ((found - expected).abs() > tolerance(case.pair, d.device) * magnitude + rounding) | ~found.isfinite()
    assert not wrong.any(), f"{wrong.sum().item()} of {wrong.numel()} elements are wrong"


def output(problem: Problem, shape: tuple[int, ...], device: torch.device):
    """D, guarded, and C, which may be D. Rows of each are some elements apart, and start anywhere."""
    case, generator = problem.call.case, problem.generator

    def strided() -> GuardedOutput:
        row_stride = shape[-1] + draw((0, 8, 3), generator)
        return GuardedOutput(
            shape, DTYPES[case.output], device, row_stride=row_stride, offset=draw((64, 8, 65), generator)
        )

    d = strided()
    if case.added == "nothing":
        return d, None, None
    c = (torch.randn(shape, generator=generator) * 10).to(DTYPES[case.output]).to(device)
    given = (d if case.added == "d" else strided()).tensor
    return d, c, given.copy_(c)


def run_dense(problem: Problem, device: torch.device, m: int, n: int, k: int) -> None:
    call = problem.call
    problem.add(m, n, k)
    d, c, given = output(problem, (m, n), device)
    a = problem.handed_a(device, transposed=call.layout[0] == "t")
    b = problem.handed_b(device, "rows", transposed=call.layout[1] == "n")
    call.function("{}_gemm_{}")(a, b, d.tensor, given, **call.recipe)
    d.check()
    check(call.case, d.tensor, *problem.expected(0), c)


def add_experts(problem: Problem, n: int, k: int, heights: list[int]) -> None:
    """Rows past an expert's count are not finite, or huge."""
    for expert, (count, height) in enumerate(zip(COUNTS, heights, strict=True)):
        problem.add(height, n, k)
        a = problem.a[expert]
        a.data[count:] = float("nan") if a.data.is_floating_point() else LARGEST_CODE.get(a.data.dtype, 127)
        problem.a[expert] = replace(a, exact=a.exact[:count])


def run_masked(problem: Problem, device: torch.device, n: int, k: int) -> None:
    call = problem.call
    add_experts(problem, n, k, [136] * len(COUNTS))
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=device)
    d, _, _ = output(problem, (len(COUNTS), 136, n), device)
    a, b = problem.handed_a(device, "groups"), problem.handed_b(device)
    call.function("m_grouped_{}_gemm_nt_masked")(a, b, d.tensor, counts, 40, **call.recipe)
    d.check(complete=False)
    for group, count in enumerate(COUNTS):
        if count:
            check(call.case, d.tensor[group, :count], *problem.expected(group), None)


def run_contiguous(problem: Problem, device: torch.device, n: int, k: int) -> None:
    call = problem.call
    psum = call.case.grouping == "m_psum"
    heights = [-(-count // matrix.ALIGNMENT) * matrix.ALIGNMENT for count in COUNTS]
    add_experts(problem, n, k, heights)
    starts = [sum(heights[:i]) for i in range(len(heights))]
    if psum:
        layout = torch.tensor([start + count for start, count in zip(starts, COUNTS, strict=True)], dtype=torch.int32)
    else:
        layout = torch.full((sum(heights),), -1, dtype=torch.int32)
        for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
            layout[start : start + count] = expert
    d, _, _ = output(problem, (sum(heights), n), device)
    a, b = problem.handed_a(device), problem.handed_b(device, transposed=call.layout == "nn")
    function = call.function("m_grouped_{}_gemm_{}_contiguous")
    with alignment_of(matrix.ALIGNMENT):
        function(a, b, d.tensor, layout.to(device), use_psum_layout=psum, **call.recipe)
    d.check()
    for expert, (start, count) in enumerate(zip(starts, COUNTS, strict=True)):
        if count:
            check(call.case, d.tensor[start : start + count], *problem.expected(expert), None)
        assert not d.tensor[start + count : start + heights[expert]].any(), "padding becomes zero"


def run_k_grouped(problem: Problem, device: torch.device, m: int, n: int) -> None:
    # No size has as many rows as these have scales along K: scales [24, 24] may be taken either way round.
    call, ks = problem.call, [128, 0, 608]
    for k in ks:
        problem.add(m, n, k)
    d, c, given = output(problem, (len(ks), m, n), device)
    sizes = torch.tensor(ks, dtype=torch.int32, device=device)
    a, b = problem.handed_a(device, "k", transposed=True), problem.handed_b(device, "k", transposed=True)
    if call.layout == "nt":
        rows = matrix.packed if call.case.pair.a == matrix.FP4 else torch.Tensor.contiguous
        flat = [torch.cat([rows(x.data).flatten() for x in parts]).to(device) for parts in (problem.a, problem.b)]
        a, b = ((data, scales) for data, (_, scales) in zip(flat, (a, b), strict=True))
    call.function("k_grouped_{}_gemm_{}_contiguous")(a, b, d.tensor, ks, sizes, c=given, **call.recipe)
    d.check()
    for group in range(len(ks)):
        check(call.case, d.tensor[group], *problem.expected(group), None if c is None else c[group])


def run_batched(problem: Problem, device: torch.device, m: int, n: int, k: int) -> None:
    """Heads of all tokens: D's rows of one head lie between those of the others."""
    call, heads = problem.call, 3
    for _ in range(heads):
        problem.add(m, n, k)
    d, c, given = output(problem, (m, heads, n), device)
    a, b = problem.handed_a(device, "groups"), problem.handed_b(device)
    if call.case.scaling_a is None:
        deep_gemm.einsum("bhr,hdr->bhd", a.transpose(0, 1), b, d.tensor, given)
    else:
        tokens = tuple(part.transpose(0, 1) for part in a)
        deep_gemm.fp8_einsum("bhr,hdr->bhd", tokens, b, d.tensor, given, **call.recipe)
    d.check()
    for head in range(heads):
        check(call.case, d.tensor[:, head], *problem.expected(head), None if c is None else c[:, head])


def run_batch_sum(problem: Problem, device: torch.device, m: int, n: int, k: int) -> None:
    for _ in range(3):
        problem.add(m, n, k)
    d, c, given = output(problem, (m, n), device)
    a, b = problem.handed_a(device, "groups"), problem.handed_b(device)
    deep_gemm.einsum("bmk,bnk->mn", a, b, d.tensor, given)
    d.check()
    parts = [problem.expected(group) for group in range(3)]
    check(problem.call.case, d.tensor, sum(part[0] for part in parts), sum(part[1] for part in parts), c)


def parameter_sets() -> list:
    """Cases on devices of their architecture: on the simulator under each schedule, with another size each."""
    sets = []
    for number, case in enumerate(matrix.cases()):
        for turn, device in enumerate(devices_of(case.pair.arch, *SCHEDULES)):
            sizes = SIZES if device.id == "cuda" else [SIZES[(number + turn) % len(SIZES)]]
            for size in sizes:
                name = f"{device.id}-{case}-{'x'.join(map(str, size))}"
                sets.append(pytest.param(case, device.values[0], size, marks=device.marks, id=name))
    return sets


def run_case(case: Case, device: torch.device, size: tuple[int, int, int], name: str = "") -> None:
    """With numbers drawn by `name`."""
    generator = torch.Generator().manual_seed(crc32(name.encode()))
    call: Call = drawn_call(case, generator)
    print(f"{call.layout}, {call.case}, scales {call.form_a} and {call.form_b}, {call.recipe}")
    with settings_of(call, device):
        run_grouping(Problem(call, generator), device, size)


def run_grouping(problem: Problem, device: torch.device, size: tuple[int, int, int]) -> None:
    m, n, k = size
    case = problem.call.case
    if case.grouping == "dense":
        run_dense(problem, device, m, n, k)
    elif case.grouping == "masked":
        run_masked(problem, device, n, k)
    elif case.grouping == "batched":
        run_batched(problem, device, m, n, k)
    elif case.grouping == "batch_sum":
        run_batch_sum(problem, device, m, n, k)
    elif case.grouping == "k_contiguous":
        run_k_grouped(problem, device, m, n)
    else:
        run_contiguous(problem, device, n, k)


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("case", "device", "size"), parameter_sets(), indirect=["device"])
def test_what_the_pair_table_has_is_multiplied(device, case, size, request) -> None:
    run_case(case, device, size, request.node.name)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_what_the_pair_table_has_not_is_refused(device) -> None:
    """Operands of two rows of the table, or of none."""
    listed = {(pair.a, pair.b) for pair in matrix.pairs() if not pair.scalings_a}
    generator = torch.Generator().manual_seed(0)
    for a, b in product(DTYPES, DTYPES):
        if (a, b) in listed or "s32" in (a, b):
            continue
        d = GuardedOutput((8, 16), torch.float32, device)
        operands = (values(x, (rows, 64), generator).to(device) for x, rows in ((a, 8), (b, 16)))
        with pytest.raises(TypeError, match="must be"):
            deep_gemm.bf16_gemm_nt(*operands, d.tensor)
        d.assert_untouched()
