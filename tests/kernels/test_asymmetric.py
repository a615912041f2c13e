"""INT8 activations with zero points: exact where scales are for all of K, else against FP64."""

from __future__ import annotations

import pytest
import torch
import torch.fx.experimental.proxy_tensor
from candidates import forced_tile, least_rows
from devices import ONE_OF_EACH_ARCH, TAKE_PACKED
from inputs import GuardedOutput, random_values
from int8_inputs import operands, scales, values, wanted
from test_int8_grouped import COUNTS, EVERY_GROUPING, Experts

import deep_gemm
from deep_gemm import PackedWeights

FLOATS = [torch.bfloat16, torch.float16, torch.float32]
FORMS = ["number", "scalar", "one", "each", "column", "strided"]


def zero_points(rows: int, device: torch.device, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, (rows,), generator=generator, dtype=torch.int32).to(device)


def given_zeros(form: str, each: torch.Tensor):
    """As a call takes them; and each row's."""
    if form in ("number", "scalar", "one"):
        given = {"number": int(each[0]), "scalar": each[0], "one": each[:1]}[form]
        return given, each[:1].expand_as(each)
    return {"each": each, "column": each[:, None], "strided": each.repeat_interleave(3)[::3]}[form], each


def shifted(a: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    return a.int() - zeros[:, None]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 24, 272), (7, 75, 400), (129, 136, 144)])
def test_dense(device, m, n, k, swapped, form, dtype) -> None:
    a, b = operands(m, n, k, device)
    zeros, every = given_zeros(form, zero_points(m, device))
    scale_a, scale_b = scales(m, device, 1), scales(n, device, 2)
    bias = random_values((n,), device, 3)
    out = GuardedOutput((m, n), dtype, device)
    with forced_tile(device, (m, n, k), swapped, least_rows(device), 32):
        deep_gemm.int8_gemm_nt((a, scale_a, zeros), (b, scale_b), out.tensor, bias=bias)
    out.check()
    assert torch.equal(out.tensor, wanted(shifted(a, every), scale_a, b, scale_b, dtype, bias))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("lies", ["between_16_bytes", "n_major", "odd_k"])
def test_weights_lie_anywhere(device, lies) -> None:
    m, n, k = 5, 40, 130 if lies == "odd_k" else 144
    a, b = values((m, 144), device, 1)[:, :k], values((n, 144 if lies == "odd_k" else k), device, 2)
    given = {
        "between_16_bytes": torch.zeros((n, k + 3), dtype=torch.int8, device=device)[:, :k],
        "n_major": torch.zeros((k, n), dtype=torch.int8, device=device).T,
        "odd_k": b[:, :k],
    }[lies]
    b = b[:, :k]
    given.copy_(b)
    zeros = zero_points(m, device)
    d = torch.zeros((m, n), device=device)
    deep_gemm.int8_gemm_nt((a, 0.5, zeros), (given, 0.25), d)
    assert torch.equal(d, wanted(shifted(a, zeros), 0.5, b, 0.25, torch.float32))


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_k_too_long_for_exact_sums_is_split(device) -> None:
    """Of the largest values, whose sum leaves 32 bits."""
    k, first = 65808, 65792
    a = torch.full((1, k), 127, dtype=torch.int8, device=device)
    b = torch.full((8, k), -128, dtype=torch.int8, device=device)
    d = torch.zeros(1, 8, device=device)
    deep_gemm.int8_gemm_nt((a, 0.5, -128), (b, 1.0), d)
    expected = torch.tensor(255 * -128 * first).float() * 0.5 + torch.tensor(255 * -128 * (k - first)).float() * 0.5
    assert (d == expected).all()


def check_close(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor, zeros_and_sums: torch.Tensor) -> None:
    """Against FP64. The correction is a difference of numbers that may be larger than what they leave."""
    magnitude = a.abs() @ b.abs().T + zeros_and_sums
    assert ((found.double() - a @ b.T).abs() <= 2e-6 * magnitude).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize(("m", "n", "k"), [(7, 136, 400), (129, 75, 272)])
def test_beside_scales_of_groups_of_k(device, m, n, k, rows) -> None:
    a, b = operands(m, n, k, device)
    zeros, scale_a = zero_points(m, device), scales(m, device, 1)
    shape = (-(-n // rows), -(-k // 128))
    scale_b = scales(shape[0] * shape[1], device, 2).view(shape)
    out = GuardedOutput((m, n), torch.float32, device)
    deep_gemm.int8_gemm_nt((a, scale_a, zeros), (b, scale_b), out.tensor, recipe=(1, rows, 128))
    out.check()
    exact_a = shifted(a, zeros).double() * scale_a.double()[:, None]
    every = scale_b.double().repeat_interleave(rows, 0)[:n].repeat_interleave(128, 1)[:, :k]
    exact_b = b.double() * every
    more = (zeros.double().abs() * scale_a.double())[:, None] * exact_b.abs().sum(1)
    check_close(out.tensor, exact_a, exact_b, more)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("form", ["number", "each"])
@EVERY_GROUPING
def test_experts(device, grouping, form) -> None:
    n, k = 75, 272
    experts = Experts.make(grouping, n, k, device)
    rows = len(experts.a)
    given, every = given_zeros(form, zero_points(rows, device))
    of_tokens, of_channels = scales(rows, device, 1), scales(len(COUNTS) * n, device, 2).view(len(COUNTS), n)
    out = experts.output(torch.float32)
    experts.run(of_tokens, of_channels, out.tensor, zeros=given)
    experts.check(
        out,
        lambda expert, rows: wanted(
            shifted(experts.a[rows], every[rows]),
            of_tokens[rows],
            experts.w[expert],
            of_channels[expert],
            torch.float32,
        ),
    )


def packed(group_size: int | None, shape: tuple[int, ...]) -> tuple[PackedWeights, torch.Tensor, torch.Tensor]:
    """Weights; their codes; their scales for each row and K."""
    generator = torch.Generator().manual_seed(6)
    codes = torch.randint(-8, 8, shape, generator=generator, dtype=torch.int8)
    k = shape[-1]
    given = torch.rand((*shape[:-1], 1 if group_size is None else k // group_size), generator=generator) + 0.5
    w = deep_gemm.pack_weights(
        codes,
        given[..., 0] if group_size is None else given,
        element="int4",
        activations="int8",
        group_size=group_size,
    )
    return w, codes, given.double().repeat_interleave(group_size or k, -1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("group_size", [None, 32, 128])
@pytest.mark.parametrize("m", [1, 129])
def test_packed_weights(device, m, group_size) -> None:
    n, k = 75, 384
    w, codes, every = packed(group_size, (n, k))
    a, zeros, scale_a = values((m, k), device, 1), zero_points(m, device), scales(m, device, 2)
    out = GuardedOutput((m, n), torch.float32, device)
    deep_gemm.int8_int4_gemm_nt((a, scale_a, zeros), w.to(device), out.tensor)
    out.check()
    exact_a = (shifted(a, zeros).double() * scale_a.double()[:, None]).cpu()
    exact_w = codes.double() * every
    if group_size is None:
        stored = every[:, 0].float().to(device)
        want = wanted(shifted(a, zeros), scale_a, codes.to(device), stored, torch.float32)
        assert torch.equal(out.tensor, want)
    more = (zeros.double().abs() * scale_a.double())[:, None].cpu() * exact_w.abs().sum(1)
    check_close(out.tensor.cpu(), exact_a, exact_w, more)


@pytest.mark.parametrize("psum", [False, True])
def test_experts_with_packed_weights(psum) -> None:
    n, k, rows = 24, 256, [128, 3]
    w, codes, every = packed(None, (2, n, k))
    a, zeros = values((256, k), "cpu", 1), zero_points(256, torch.device("cpu"))
    layout = torch.tensor([128, 131] if psum else [0] * 128 + [1] * 3 + [-1] * 125, dtype=torch.int32)
    d = GuardedOutput((256, n), torch.float32, "cpu")
    deep_gemm.m_grouped_int8_int4_gemm_nt_contiguous((a, 0.5, zeros), w, d.tensor, layout, use_psum_layout=psum)
    d.check()
    for expert, count in enumerate(rows):
        own = slice(128 * expert, 128 * expert + count)
        want = wanted(shifted(a[own], zeros[own]), 0.5, codes[expert], every[expert, :, 0].float(), torch.float32)
        assert torch.equal(d.tensor[own], want)
    assert not d.tensor[131:].any()


@pytest.mark.parametrize(
    ("error", "match", "zeros", "a_scales"),
    [
        (TypeError, "a's zeros must be int32, got float32", torch.zeros(16), 1.0),
        (ValueError, "a's zeros must be one .* or one a row .M = 16", torch.zeros(15, dtype=torch.int32), 1.0),
        (ValueError, "a's scales must be one, or one a row, where a has zeros", 3, torch.ones(16, 2)),
        (ValueError, "a's zeros must be int32, or a number that int32 can hold", 2**31, 1.0),
    ],
)
def test_wrong_zeros_are_refused(error, match, zeros, a_scales) -> None:
    a, b = operands(16, 24, 256, torch.device("cpu"))
    d = GuardedOutput((16, 24), torch.float32, "cpu")
    with pytest.raises(error, match=match):
        deep_gemm.int8_gemm_nt((a, a_scales, zeros), (b, 1.0), d.tensor)
    d.assert_untouched()


def test_floating_activations_have_none() -> None:
    w = deep_gemm.pack_weights(torch.ones(24, 128, dtype=torch.int8), torch.ones(24), element="int4", activations="fp8")
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with pytest.raises(TypeError, match=r"a must be a pair \(tensor, scales\), got \(tensor, 1.0, 3\)"):
        deep_gemm.fp8_int4_gemm_nt((torch.ones(3, 128).to(torch.float8_e4m3fn), 1.0, 3), w, d.tensor)
    d.assert_untouched()


def test_as_operators() -> None:
    a, b = operands(5, 24, 128, torch.device("cpu"))
    zeros, want, found = zero_points(5, torch.device("cpu")), torch.zeros(5, 24), torch.zeros(5, 24)
    deep_gemm.int8_gemm_nt((a, 0.5, zeros), (b, 2.0), want)
    torch.ops.deep_gemm.int8_gemm_nt(a, torch.tensor(0.5), zeros, b, torch.tensor(2.0), found)
    assert torch.equal(found, want)
    w, _, _ = packed(None, (24, 128))
    deep_gemm.int8_int4_gemm_nt((a, 0.5, zeros), w, want)
    parts = w.codes, w.scales, w.zeros, w.sums, w.second_scales, w._form
    torch.ops.deep_gemm.int8_int4_gemm_nt(a, torch.tensor(0.5), zeros, *parts, found.zero_())
    assert torch.equal(found, want)


@pytest.mark.gpu
@pytest.mark.parametrize("ahead", [False, True])
def test_a_captured_call_replays(cuda, ahead) -> None:
    a, b = operands(64, 576, 512, cuda)
    zeros, d = zero_points(64, cuda), torch.zeros(64, 576, device=cuda)

    def run() -> None:
        sums = deep_gemm.int8_row_sums(b) if ahead else None
        deep_gemm.int8_gemm_nt((a, 0.5, zeros), (b, 0.5), d, b_sums=sums)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    b.copy_(values((576, 512), cuda, 9))
    zeros += 1
    d.fill_(float("nan"))
    graph.replay()
    assert torch.equal(d, wanted(shifted(a, zeros), 0.5, b, 0.5, torch.float32))
