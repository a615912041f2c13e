"""What must hold of one call of a batch, of a sum over a batch, and of groups along K (see call_checks.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from batched_inputs import FORMS, laid_out, matrices_of
from call_checks import assert_equal_again, assert_near, assert_same, described, guarded
from drawn_operands import DTYPES
from drawn_steps import GATED_N, PARTIAL_N, Steps, drawn_gate
from inputs import ceil_div
from matrix import FP4, Call, Problem, Quantised, packed, settings_of, tolerance

import deep_gemm

Function = Callable[..., None]
PLAIN = Steps()


def check_product(
    r: random.Random,
    problem: Problem,
    shape: tuple[int, ...],
    function: Function,
    expected: list[tuple[torch.Tensor, torch.Tensor]],
    order: tuple[int, ...],
    device: torch.device,
    compiles: bool = False,
    steps: Steps = PLAIN,
) -> torch.Tensor:
    """One call with C or without, compared matrix by matrix: `order` says where D has these. Returns D's matrices."""
    case = problem.call.case
    dtype, added = DTYPES[case.output], case.added
    if steps.gate is not None and added == "d":
        added = "c"
    of_d = (*shape[:-1], steps.columns(shape[-1]))
    c = None if added == "nothing" else (torch.randn(shape, generator=problem.generator) * 10).to(dtype)

    def run(compiled_dims: str) -> torch.Tensor:
        d = guarded(r, of_d, dtype, device)
        more: dict[str, Any] = {"compiled_dims": compiled_dims} if compiles else {}
        if not steps.is_plain:
            more["epilogue"] = steps.epilogue()
        if c is not None:
            more["c"] = (d if added == "d" else guarded(r, shape, dtype, device)).tensor
            more["c"].copy_(c)
        function(d.tensor, **more)
        d.check()
        return d.tensor.cpu()

    found = run(r.choice(["", "mn", "m"]))
    if r.random() < 0.4:
        assert_equal_again(r, run, found, device)
    if steps.is_plain and added == "nothing" and dtype not in (torch.float32, torch.int32) and r.random() < 0.3:
        whole = torch.zeros(shape, device=device)
        function(whole, c=whole)
        assert_same(whole.to(dtype).cpu(), found, "FP32 sums added to zeros, and rounded")
    matrices = found[None] if len(shape) == 2 else matrices_of(found, order)
    for index, (value, size) in enumerate(expected):
        value, size = steps.factor(value, size)
        if c is not None:
            mine = (c[None] if len(shape) == 2 else matrices_of(c, order))[index].double()
            value, size = value + mine, size + mine.abs()
        value, size = steps.of_sums(value, size, tolerance(case.pair, device))
        if steps.row_weights is not None:
            weights = matrices_of(steps.row_weights.cpu().double()[..., None], order)[index]
            value, size = value * weights, size * weights.abs()
        assert_near(matrices[index], value, size, tolerance(case.pair, device))
    return matrices


def check_batch(r: random.Random, call: Call, device: torch.device, m: int, n: int, k: int, batch: int) -> None:
    """Each of the expressions; of FP8 those that turn an operand with FP32 scales."""
    scaled = call.case.scaling_a is not None
    turned = (scaled and (call.form_a.written, call.form_b.written) == ("fp32", "fp32")) or not scaled
    expr = r.choice([*FORMS]) if turned else "bhr,hdr->bhd"
    if expr == "bhd,bhr->hdr" and scaled and call.case.scaling_b.rows != 1:
        expr = "bhd,hdr->bhr"
    alpha, gate = r.uniform(-2, 2) if r.random() < 0.2 else None, None
    if expr == "bhr,hdr->bhd" and call.layout[1] == "t" and r.random() < 0.3:
        gate = drawn_gate(r)
        in_blocks = scaled and call.case.scaling_b.rows != 1
        n = r.choice([512] if in_blocks and gate.layout == "halves" else [*GATED_N, *PARTIAL_N])
    problem = Problem(call, torch.Generator().manual_seed(r.randrange(1 << 30)))
    for _ in range(batch):
        problem.add(m, n, k)
    operands = [problem.handed_a(device, "groups"), problem.handed_b(device, "groups")]
    extents, order = (batch, m, n), FORMS[expr][2]
    shape = tuple(extents[i] for i in order)
    weights = torch.randn(shape[:-1], generator=problem.generator).to(device) if r.random() < 0.3 else None
    steps = Steps(alpha, gate, row_weights=weights)
    if expr == "bhr,hdr->bhd":  # in the strides that were drawn
        a = operands[0]
        operands[0] = tuple(part.transpose(0, 1) for part in a) if scaled else a.transpose(0, 1)
    else:
        for index, x in enumerate(operands):
            lies = FORMS[expr][index]
            operands[index] = tuple(turn(part, lies) for part in x) if scaled else turn(x, lies)
    function = deep_gemm.fp8_einsum if scaled else deep_gemm.einsum

    def product(d: torch.Tensor, **more: Any) -> None:
        function(expr, *operands, d, **more, **call.recipe)

    expected = [problem.expected(group) for group in range(batch)]
    check_product(r, problem, shape, product, expected, order, device, steps=steps)


def turn(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Bytes, as torch copies no E8M0 in some strides."""
    dtype = torch.uint8 if tensor.dtype.itemsize == 1 else tensor.dtype
    return laid_out(tensor.view(dtype), order).view(tensor.dtype)


def check_sum(r: random.Random, call: Call, device: torch.device, m: int, n: int, k: int, batch: int) -> None:
    problem = Problem(call, torch.Generator().manual_seed(r.randrange(1 << 30)))
    for _ in range(batch):
        problem.add(m, n, k)
    a, b = problem.handed_a(device, "groups"), problem.handed_b(device, "groups")
    parts = [problem.expected(group) for group in range(batch)]
    whole = sum(part[0] for part in parts), sum(part[1] for part in parts)

    def product(d: torch.Tensor, **more: Any) -> None:
        deep_gemm.einsum("bmk,bnk->mn", a, b, d, **more)

    check_product(r, problem, (m, n), product, [whole], (1, 2), device)


def drawn_ks(r: random.Random, call: Call, groups: int, taken: tuple[int, ...]) -> list[int]:
    """Groups' K, empty ones too. No operand has as many rows as scales along K: such may be taken either way round."""
    step = {"e4m3": 16, FP4: 32}.get(call.case.pair.a, 8)
    if call.case.scaling_a is not None and call.case.scaling_a.element != "fp32":
        step = 32
    while True:
        ks = [step * r.choice([0, 1, 4, 8, r.randint(0, 40)]) for _ in range(groups)]
        scaling = call.case.scaling_a
        columns = set() if scaling is None else {sum(ceil_div(k, scaling.k * per) for k in ks) for per in (1, 4)}
        if sum(ks) and not columns & set(taken):
            return ks


def with_ends(part: Problem, ks: list[int]) -> tuple[Problem, list[int], list[int]]:
    """Groups that start at multiples of the alignment, and NaN between them; where they end, and how far they reach."""
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    heights = [ceil_div(k, alignment) * alignment for k in ks]
    ends = [sum(heights[:group]) + k for group, k in enumerate(ks)]

    def apart(operand: list[Quantised]) -> list[Quantised]:
        found = []
        for x, height in zip(operand, heights, strict=True):
            wide = torch.empty((len(x.data), height), dtype=x.data.dtype)
            wide.view(torch.uint8).fill_(0xFF)
            wide[:, : x.data.shape[1]] = x.data
            found.append(replace(x, data=wide))
        return found

    return replace(part, a=apart(part.a), b=apart(part.b)), ends, heights


def check_k_groups(r: random.Random, call: Call, device: torch.device, m: int, n: int, groups: int) -> None:
    """Of counts, or of ends; with batch invariance, neighbours alone."""
    ks = drawn_ks(r, call, groups, (m, n))
    problem = Problem(call, torch.Generator().manual_seed(r.randrange(1 << 30)))
    for k in ks:
        problem.add(m, n, k)

    def handed(part: Problem) -> tuple[Any, Any]:
        operands = [part.handed_a(device, "k", transposed=True), part.handed_b(device, "k", transposed=True)]
        if call.layout == "nt":
            rows = packed if call.case.pair.a == FP4 else torch.Tensor.contiguous
            for index, parts in enumerate((part.a, part.b)):
                flat = torch.cat([rows(x.data).flatten() for x in parts]).to(device)
                operands[index] = flat, operands[index][1]
        return operands[0], operands[1]

    gemm = call.function("k_grouped_{}_gemm_{}_contiguous")
    ends_apart = call.layout == "tn" and r.random() < 0.4

    def product_of(part: Problem, part_ks: list[int]) -> Function:
        sizes, told, more = part_ks, part_ks, {}
        if ends_apart:
            part, sizes, heights = with_ends(part, part_ks)
            told = r.choice([part_ks, None, heights]) if call.case.scaling_a is not None else part_ks
            more = {"use_psum_layout": True}
        a, b = handed(part)
        layout = torch.tensor(sizes, dtype=torch.int32, device=device)

        def product(d: torch.Tensor, **others: Any) -> None:
            with described(f"[{gemm.__name__}, ks_cpu={told}, {layout.tolist()}, {more}]"):
                gemm(a, b, d, told, layout, **others, **more, **call.recipe)

        return product

    expected = [problem.expected(group) for group in range(groups)]
    shape = (groups, m, n)
    found = check_product(r, problem, shape, product_of(problem, ks), expected, (0, 1, 2), device, compiles=True)
    if deep_gemm.get_batch_invariant(device) and call.case.added == "nothing":
        first = r.randrange(groups)
        last = r.randint(first + 1, groups)
        if sum(ks[first:last]) == 0:
            return
        part = replace(problem, a=problem.a[first:last], b=problem.b[first:last])
        alone = guarded(r, (last - first, m, n), DTYPES[call.case.output], device)
        product_of(part, ks[first:last])(alone.tensor, compiled_dims=r.choice(["", "mn"]))
        assert_same(alone.tensor.cpu(), found[first:last], "groups alone")


def check_batched(r: random.Random, call: Call, device: torch.device, m: int, n: int, k: int, batch: int) -> str:
    """By the grouping. Returns the function's name."""
    with settings_of(call, device):
        if call.case.grouping == "batched":
            check_batch(r, call, device, m, n, k, batch)
            return "einsum" if call.case.scaling_a is None else "fp8_einsum"
        if call.case.grouping == "batch_sum":
            check_sum(r, call, device, m, n, k, batch)
            return "einsum"
        check_k_groups(r, call, device, m, n, batch)
        return call.function("k_grouped_{}_gemm_{}_contiguous").__name__
