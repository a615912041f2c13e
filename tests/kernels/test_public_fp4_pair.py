"""FP8 activations with the public pair of FP4 weights, which each call packs: what packed weights give."""

from __future__ import annotations

import pytest
import torch
from devices import PACK_PAIRS
from grouped_inputs import alignment_of
from inputs import GuardedOutput, ceil_div
from packed_products import KINDS, Tokens

import deep_gemm


class Fp4Pair:
    """MXFP4 weights as the public API has them, in one of its forms of scales, and packed."""

    def __init__(self, shape: tuple[int, ...], form: str = "fp32", group: int = 32, device="cpu") -> None:
        *groups, n, k = shape
        generator = torch.Generator().manual_seed(n)
        codes = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        exponents = torch.randint(110, 130, (*groups, n, ceil_div(k, group)), generator=generator, dtype=torch.uint8)
        self.pairs = deep_gemm.utils.pack_int4((codes << 4).view(torch.int8) >> 4).to(device)
        spread = exponents.repeat_interleave(group // 32, -1)
        self.packed = deep_gemm.pack_weights(codes, spread, element="e2m1", activations="fp8", group_size=32).to(device)
        self.scales = (exponents.int() << 23).view(torch.float32).to(device)
        if form == "columns":
            self.scales = self.scales.mT.contiguous().mT
        if form == "e8m0":
            self.scales = exponents.view(torch.float8_e8m0fnu).to(device)
        if form == "words":  # behind the last group, NaN
            words = torch.nn.functional.pad(exponents, (0, -exponents.shape[-1] % 4), value=255).view(torch.int32)
            self.scales = words.mT.contiguous().mT.to(device)

    @property
    def public(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.pairs, self.scales


FORMS = pytest.mark.parametrize("form", ["fp32", "columns", "e8m0", "words"])


@pytest.mark.parametrize("device", PACK_PAIRS, indirect=True)
@FORMS
def test_the_public_pair_of_fp4_gives_what_packed_weights_give(device, form) -> None:
    m, n, k = 9, 136, 288
    a = Tokens(KINDS["mxfp4-k-groups"], (m, k), torch.Generator().manual_seed(6))
    w = Fp4Pair((n, k), form, device=device)
    assert not w.packed.folds_exponents
    c = torch.randn((m, n), generator=torch.Generator().manual_seed(7)).to(device)
    d, wanted = GuardedOutput((m, n), torch.float32, device), torch.empty((m, n), device=device)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.packed, wanted, c)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.public, d.tensor, c, recipe_a=(1, 128), recipe_b=(1, 32))
    d.check()
    assert torch.equal(d.tensor, wanted)
    operator = torch.ops.deep_gemm.fp8_fp4_gemm_nt
    again = torch.full_like(wanted, torch.nan)
    operator(*a.to(device), *w.public, again, c)
    assert torch.equal(again, wanted)


@pytest.mark.parametrize("device", PACK_PAIRS, indirect=True)
@pytest.mark.parametrize("recipe", [{"recipe": (1, 1, 128)}, {"recipe_a": (1, 128), "recipe_b": (1, 128)}], ids=str)
def test_the_public_pair_of_fp4_with_scales_for_128_of_k_and_a_bias(device, recipe) -> None:
    m, n, k = 5, 24, 384
    a = Tokens(KINDS["mxfp4"], (m, k), torch.Generator().manual_seed(6))
    w = Fp4Pair((n, k), group=128, device=device)
    bias = torch.arange(n).float().to(device)
    d, wanted = torch.empty((m, n), device=device), torch.empty((m, n), device=device)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.packed, wanted, bias=bias)
    deep_gemm.fp8_fp4_gemm_nt(a.to(device), w.public, d, bias=bias, **recipe)
    assert w.packed.folds_exponents  # and so sums of other groups are rounded
    torch.testing.assert_close(d, wanted, rtol=1e-4, atol=1e-4 * wanted.abs().max())


@pytest.mark.parametrize("device", PACK_PAIRS, indirect=True)
@FORMS
def test_experts_of_the_public_pair_give_what_packed_ones_give(device, form) -> None:
    experts, rows, n, k = 2, 128, 72, 160
    a = Tokens(KINDS["mxfp4-k-groups"], (experts * rows, k), torch.Generator().manual_seed(6))
    w = Fp4Pair((experts, n, k), form, device=device)
    owners = torch.arange(experts, dtype=torch.int32, device=device).repeat_interleave(rows)
    d, wanted = (torch.empty((experts * rows, n), dtype=torch.bfloat16, device=device) for _ in range(2))
    bias = torch.randn((experts, n), generator=torch.Generator().manual_seed(7)).to(device)
    with alignment_of(rows):
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.to(device), w.packed, wanted, owners, bias=bias)
        deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a.to(device), w.public, d, owners, bias=bias)
    assert torch.equal(d, wanted)
    data, scales = a.to(device)
    masked = data.view(experts, rows, k), scales.view(experts, rows, -1)
    counts = torch.tensor([7, 128], dtype=torch.int32, device=device)
    found = torch.full((experts, rows, n), 3, dtype=torch.bfloat16, device=device)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(masked, w.public, found, counts, 64, bias=bias)
    for expert, count in enumerate(counts.tolist()):
        assert torch.equal(found[expert, :count], wanted.view(experts, rows, n)[expert, :count])


def test_the_public_pair_of_fp4_is_compiled_as_one_graph() -> None:
    w, a = Fp4Pair((24, 128)), Tokens(KINDS["mxfp4"], (3, 128), torch.Generator().manual_seed(6)).to("cpu")

    def step(data, scales, pairs, w_scales):
        d = torch.zeros((3, 24))
        deep_gemm.fp8_fp4_gemm_nt((data, scales), (pairs, w_scales), d)
        return d * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*a, *w.public), step(*a, *w.public))


def test_empty_products_of_the_public_pair() -> None:
    pair = torch.zeros((24, 0), dtype=torch.int8), torch.ones((24, 0))
    d, c = torch.full((3, 24), torch.nan), torch.ones((3, 24))
    deep_gemm.fp8_fp4_gemm_nt((torch.empty((3, 0), dtype=torch.float8_e4m3fn), torch.ones(3)), pair, d, c)
    assert torch.equal(d, c)
    w = Fp4Pair((24, 128))
    deep_gemm.fp8_fp4_gemm_nt((torch.empty((0, 128), dtype=torch.float8_e4m3fn), torch.ones(0)), w.public, d[:0])


def test_products_of_the_public_pair_without_k_are_their_bias() -> None:
    a, bias = (torch.empty((128, 0), dtype=torch.float8_e4m3fn), torch.ones(128)), torch.randn(2, 24)
    pair = torch.zeros((2, 24, 0), dtype=torch.int8), torch.ones((2, 24, 0))
    d, c = torch.full((128, 24), torch.nan), torch.ones((128, 24))
    deep_gemm.fp8_fp4_gemm_nt(a, (pair[0][0], pair[1][0]), d, c, bias=bias[1])
    assert torch.equal(d, (bias[1] + 1).expand(128, 24))
    owners = torch.tensor([1] * 5 + [-1] * 123, dtype=torch.int32)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous(a, pair, d, owners, bias=bias)
    assert torch.equal(d, bias[1] * (owners == 1).unsqueeze(1))
    masked, counts = d.view(2, 64, 24), torch.tensor([3, 64], dtype=torch.int32)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(
        (a[0].view(2, 64, 0), a[1].view(2, 64)), pair, masked, counts, 8, bias=bias
    )
    assert torch.equal(masked[0, :3], bias[0].expand(3, 24))
    assert torch.equal(masked[1], bias[1].expand(64, 24))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"recipe": (1, 1, 32)},
            ValueError,
            "scales of a must be for one row and 128 of K except on Blackwell .*says 32",
        ),
        ({"recipe_a": (1, 128), "recipe_b": (128, 128)}, ValueError, r"those of b must be for one.*and \(128, 128\)"),
        ({"recipe_a": (1, 128), "recipe_b": (1, 48)}, ValueError, "for 32 of K, or a multiple of it, got 48"),
        ({"recipe_a": (1, 128)}, ValueError, "recipe_a and recipe_b go together"),
        ({"recipe": (1, 1, 128), "recipe_a": (1, 128)}, ValueError, "either recipe or recipe_a and recipe_b"),
        (
            {"scales": torch.ones(24, 3)},
            ValueError,
            r"b's scales must be \[24, 4\] .*32 of K of b\), got shape \[24, 3\]",
        ),
        ({"scales": torch.ones(24, 4).bfloat16()}, TypeError, "b's scales must be int32 .* got bfloat16"),
        ({"pairs": torch.zeros((64, 24), dtype=torch.int8).T}, ValueError, "b must have K contiguous"),
        ({"pairs": torch.zeros((24, 32), dtype=torch.int8)}, ValueError, "b has K=64 but a has K=128"),
        ({"pairs": torch.zeros((1, 24, 64), dtype=torch.int8)}, ValueError, r"b must .*\[N, K / 2\]"),
    ],
)
def test_wrong_public_pairs_are_refused(changes, error, message) -> None:
    w = Fp4Pair((24, 128))
    pair = changes.pop("pairs", w.pairs), changes.pop("scales", w.scales)
    d = GuardedOutput((3, 24), torch.float32, "cpu")
    with pytest.raises(error, match=message):
        deep_gemm.fp8_fp4_gemm_nt((torch.zeros((3, 128)).to(torch.float8_e4m3fn), 1.0), pair, d.tensor, **changes)
    d.assert_untouched()


@pytest.mark.gpu
def test_a_graph_packs_the_public_pair_of_the_moment(cuda) -> None:
    a = Tokens(KINDS["mxfp4"], (16, 512), torch.Generator().manual_seed(6)).to(cuda)
    w, other = Fp4Pair((256, 512), device=cuda), Fp4Pair((256 + 1, 512), device=cuda)
    d, wanted = torch.empty((16, 256), device=cuda), torch.empty((16, 256), device=cuda)
    deep_gemm.fp8_fp4_gemm_nt(a, w.public, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.fp8_fp4_gemm_nt(a, w.public, d)
    w.pairs.copy_(other.pairs[:256])
    w.scales.copy_(other.scales[:256])
    deep_gemm.fp8_fp4_gemm_nt(a, w.public, wanted)
    graph.replay()
    assert torch.equal(d, wanted)
