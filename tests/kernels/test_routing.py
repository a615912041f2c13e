"""Rows of experts: where each choice lies, rows to experts and back, against torch's stable sort and FP64."""

from __future__ import annotations

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from logits_inputs import generator_of

import deep_gemm
from deep_gemm import routing
from deep_gemm.utils import align

ALIGNMENT = 128
HALF_SCALES = torch.zeros(6, 8), torch.zeros(6, 1).half()


def choices_of(tokens: int, choices: int, experts: int, device: torch.device | str, dtype=torch.int64) -> torch.Tensor:
    """Uneven, with experts that none chooses, choices of none, and numbers that are no expert's."""
    generator = generator_of(tokens)
    likely = torch.rand(experts, generator=generator) ** 4
    likely[experts // 2] = 0
    ids = torch.multinomial(likely.expand(tokens, -1), choices, generator=generator)
    ids[1::5, 0], ids[2::7, -1], ids[3::11, 0] = -1, experts, -(2**31)
    return ids.to(device, dtype)


def expected_rows(ids: torch.Tensor, experts: int, begin: list[int], places: list[int]) -> torch.Tensor:
    """The row of each choice, one after the other."""
    taken = [0] * experts
    rows = torch.full((ids.numel(),), -1, dtype=torch.int32)
    for choice, expert in enumerate(ids.flatten().tolist()):
        if 0 <= expert < experts:
            if taken[expert] < places[expert]:
                rows[choice] = begin[expert] + taken[expert]
            taken[expert] += 1
    return rows.view(ids.shape)


def require_consistent(found: routing.Routing, ids: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> None:
    assert torch.equal(found.row_of.cpu(), rows)
    source = torch.full((found.source.numel(),), -1, dtype=torch.int32)
    placed = rows.flatten() >= 0
    at = rows.flatten()[placed].long()
    source[at] = torch.arange(ids.numel(), dtype=torch.int32)[placed]
    assert torch.equal(found.source.cpu().flatten(), source)
    row_weights = torch.zeros(len(source))
    row_weights[at] = weights.cpu().flatten()[placed]
    assert torch.equal(found.row_weights.cpu().flatten(), row_weights)
    if found.indices is not None:
        indices = torch.full((len(source),), -1, dtype=torch.int32)
        indices[at] = ids.cpu().flatten()[placed].int()
        assert torch.equal(found.indices.cpu(), indices)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("kind", routing.KINDS)
@pytest.mark.parametrize(
    ("tokens", "choices", "experts", "dtype"),
    [
        (77, 3, 9, torch.int32),
        (1100, 4, 256, torch.int64),  # more than a block has
        (1, 1, 1, torch.int64),
        (40, 8, 300, torch.int32),
        (0, 2, 5, torch.int64),
    ],
)
def test_each_choice_has_its_row(device, kind, tokens, choices, experts, dtype) -> None:
    ids = (
        choices_of(tokens, choices, experts, device, dtype)
        if experts > 1
        else torch.zeros(1, 1, dtype=dtype, device=device)
    )
    weights = torch.rand(tokens, choices, generator=generator_of(2)).to(device)
    found = routing.route(ids, experts, kind=kind, weights=weights)
    flat = ids.cpu().flatten().long()
    counts = torch.bincount(flat[(flat >= 0) & (flat < experts)], minlength=experts)
    assert found.counts.tolist() == counts.tolist()
    if kind == "masked":
        begin, places = [expert * tokens for expert in range(experts)], [tokens] * experts
        assert found.ends.tolist() == counts.tolist()
    else:
        sizes = [align(count, ALIGNMENT) for count in counts.tolist()]
        begin, places = [sum(sizes[:expert]) for expert in range(experts)], sizes
        assert found.ends.tolist() == [first + count for first, count in zip(begin, counts.tolist(), strict=True)]
    require_consistent(found, ids, expected_rows(ids.cpu(), experts, begin, places), weights)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH[:1], indirect=True)
def test_what_finds_no_place_is_counted(device) -> None:
    """Of 40 choices of expert 1, and 3 of expert 2."""
    ids = torch.tensor([[1]] * 40 + [[2]] * 3, device=device)
    weights = torch.ones(43, 1, device=device)
    found = routing.route(ids, 3, kind="masked", max_m=32, weights=weights)
    assert (found.counts.tolist(), found.ends.tolist()) == ([0, 40, 3], [0, 32, 3])
    require_consistent(found, ids, expected_rows(ids.cpu(), 3, [0, 32, 64], [32] * 3), weights)
    found = routing.route(ids, 3, kind="psum", rows=32, alignment=16, weights=weights)
    assert (found.counts.tolist(), found.ends.tolist()) == ([0, 40, 3], [0, 32, 32])
    require_consistent(found, ids, expected_rows(ids.cpu(), 3, [0, 0, 32], [32, 32, 0]), weights)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("kind", routing.KINDS)
@pytest.mark.parametrize(
    ("columns", "dtype"), [(256, torch.bfloat16), (33, torch.float16), (130, torch.float32), (7, torch.int8)]
)
def test_rows_are_their_tokens(device, kind, columns, dtype) -> None:
    found = routing.route(choices_of(50, 3, 6, device), 6, kind=kind)
    x = (torch.randn(50, columns, generator=generator_of(1)) * 50).to(device, dtype)
    rows = routing.gather(x, found, clear=True)
    token = (found.source // 3).clamp(min=0).long()
    assert torch.equal(rows, torch.where((found.source >= 0)[..., None], x[token], 0))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("kind", routing.KINDS)
@pytest.mark.parametrize("scales", ["fp32", "packed"])
def test_scales_come_along(device, kind, scales) -> None:
    found = routing.route(choices_of(50, 3, 6, device), 6, kind=kind)
    q, s = deep_gemm.quantize.fp8(torch.randn(50, 768, generator=generator_of(1)).to(device), scales=scales)
    rows, row_scales = routing.gather((q, s), found)
    assert scales == "packed" or deep_gemm.get_mn_major_tma_aligned_tensor(row_scales) is row_scales
    there = found.source >= 0
    token = (found.source // 3)[there].long()
    assert torch.equal(rows.view(torch.uint8)[there], q.view(torch.uint8)[token])
    assert torch.equal(row_scales[there], s[token])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("kind", routing.KINDS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("columns", "dtype"), [(1040, torch.bfloat16), (33, torch.float16), (130, torch.float32)])
def test_tokens_are_the_sums_of_their_rows(device, kind, weighted, columns, dtype) -> None:
    """Rows of no token hold NaN; more slots than are asked for at once."""
    ids = choices_of(30, 6, 9, device)
    found = routing.route(ids, 9, kind=kind)
    y = torch.randn(*found.source.shape, columns, generator=generator_of(4)).to(device, dtype)
    y[found.source < 0] = torch.nan
    weights = torch.rand(30, 6, generator=generator_of(5)).to(device) if weighted else None
    exact = torch.zeros(30, columns, dtype=torch.float32)
    row_of, flat = found.row_of.cpu(), y.view(-1, columns).cpu()
    for slot in range(6):  # FP64 holds the product of these, and rounds their sum once
        row = row_of[:, slot].clamp(min=0).long()
        factor = torch.ones(30) if weights is None else weights[:, slot].cpu()
        added = flat[row].double() * factor[:, None].double() + exact.double()
        exact = torch.where((row_of[:, slot] >= 0)[:, None], added.float(), exact)
    out = routing.combine(y, found, weights)
    assert out.dtype == dtype
    assert torch.equal(routing.combine(y, found, weights, dtype=torch.float32).cpu(), exact)
    assert torch.equal(out.cpu(), exact.to(dtype))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH[:1], indirect=True)
@pytest.mark.parametrize("kind", ["indices", "masked"])
def test_gradients_of_the_way_there_and_back(device, kind) -> None:
    """Against those of torch's own indexing, in FP64."""
    ids = choices_of(20, 3, 5, device)
    found = routing.route(ids, 5, kind=kind)
    x = torch.randn(20, 24, generator=generator_of(1)).to(device).requires_grad_()
    weights = torch.rand(20, 3, generator=generator_of(2)).to(device).requires_grad_()
    of_result = torch.randn(20, 24, generator=generator_of(3)).to(device)
    rows = routing.gather(x, found, clear=True)
    routing.combine(rows * rows, found, weights).backward(of_result)
    exact_x, exact_weights = (tensor.detach().double().requires_grad_() for tensor in (x, weights))
    kept = (found.row_of >= 0).double()
    ((exact_x**2)[:, None, :] * (exact_weights * kept)[..., None]).sum(1).backward(of_result.double())
    torch.testing.assert_close(x.grad.double(), exact_x.grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weights.grad.double(), exact_weights.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH[:1], indirect=True)
def test_products_take_its_layouts(device) -> None:
    """All three give each token the same, which is that of its experts."""
    ids = choices_of(24, 2, 4, device)
    x = torch.randn(24, 64, generator=generator_of(1)).to(device, torch.bfloat16)
    w = torch.randn(4, 32, 64, generator=generator_of(2)).to(device, torch.bfloat16)
    weights = torch.rand(24, 2, generator=generator_of(3)).to(device)
    results = []
    for kind in routing.KINDS:
        found = routing.route(ids, 4, kind=kind, weights=weights)
        rows = routing.gather(x, found)
        y = rows.new_empty(*rows.shape[:-1], 32)
        deep_gemm.gemm(rows, w, y, grouping=found.grouping(), epilogue=deep_gemm.epilogue.RowScale(found.row_weights))
        results.append(routing.combine(y, found))
    exact = torch.zeros(24, 32, dtype=torch.float64, device=device)
    for slot in range(2):
        chosen = ids[:, slot]
        known = (chosen >= 0) & (chosen < 4)
        each = torch.einsum("tk,tnk->tn", x.double(), w.double()[chosen.clamp(0, 3)]) * weights[:, slot, None]
        exact += torch.where(known[:, None], each, 0)
    assert ((results[0].double() - exact).norm() / exact.norm()) < 4e-3
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_recorded_and_traced() -> None:
    """As other kernels: known beforehand, and one graph for torch.compile."""
    with deep_gemm.jit.record("sm_90a") as recording:
        place = deep_gemm.jit.placeholder
        found = routing.route(place(65536, 8, dtype=torch.int64), 256, kind="psum")
        rows = routing.gather(place(65536, 64, dtype=torch.bfloat16), found)
        routing.combine(rows, found, place(65536, 8, dtype=torch.float32))
    assert [kernel.name for kernel in recording.kernels] == [
        "route_count",
        "route_place",
        "gather_rows",
        "combine_rows",
    ]

    def layer(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        found = routing.route(ids, 4, kind="masked")
        return routing.combine(routing.gather(x, found) * 2, found, weights)

    given = torch.randn(10, 8), choices_of(10, 2, 4, "cpu"), torch.rand(10, 2)
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(*given), layer(*given))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("kind must be", lambda ids: routing.route(ids, 4, kind="sorted")),
        ("ids must be int32 or int64, got int8", lambda ids: routing.route(ids.to(torch.int8), 4)),
        ("num_experts must be from 1 to 1024, got 2000", lambda ids: routing.route(ids, 2000)),
        ("rows must be a multiple of the alignment, 128, got 100", lambda ids: routing.route(ids, 4, rows=100)),
        ("weights must be float32", lambda ids: routing.route(ids, 4, weights=torch.rand(6, 2).bfloat16())),
        ("weights must have the shape of ids", lambda ids: routing.route(ids, 4, weights=torch.rand(12))),
        ("x must be .6, K.", lambda ids: routing.gather(torch.rand(5, 8), routing.route(ids, 4))),
        ("y must be .512, 'N'.", lambda ids: routing.combine(torch.rand(5, 8), routing.route(ids, 4))),
        ("x must be bfloat16", lambda ids: routing.combine(torch.zeros(512, 8).int(), routing.route(ids, 4))),
        ("scales must be float32 or int32", lambda ids: routing.gather(HALF_SCALES, routing.route(ids, 4))),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused(words, call) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call(torch.zeros(6, 2, dtype=torch.int64))
