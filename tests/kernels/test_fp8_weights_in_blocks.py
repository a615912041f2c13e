"""16-bit activations with E4M3 weights and scales of blocks, which each call packs: what packed weights give."""

from __future__ import annotations

import pytest
import torch
from devices import TAKE_PACKED
from inputs import GuardedOutput, ceil_div

import deep_gemm


class Fp8Pair:
    """E4M3 weights with scales of 128x128 blocks, in one of their forms, and packed."""

    def __init__(self, shape: tuple[int, ...], form: str = "fp32", seed: int = 8) -> None:
        *groups, n, k = shape
        generator = torch.Generator().manual_seed(seed)
        self.values = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
        self.scales = torch.rand((*groups, ceil_div(n, 128), ceil_div(k, 128)), generator=generator) + 0.5
        if form == "columns":
            self.scales = self.scales.mT.contiguous().mT
        if form == "e8m0":
            self.scales = torch.randint(118, 136, self.scales.shape, dtype=torch.uint8).view(torch.float8_e8m0fnu)
        rows = self.scales.float().repeat_interleave(128, -2)[..., :n, :]
        self.packed = deep_gemm.pack_weights(self.values, rows, element="e4m3", activations="bf16", group_size=128)

    def to(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return self.values.to(device), self.scales.to(device)


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("form", ["fp32", "columns", "e8m0"])
@pytest.mark.parametrize(("n", "k"), [(130, 272), (24, 144)])
def test_fp8_weights_in_blocks_give_what_packed_ones_give(device, n, k, form) -> None:
    generator = torch.Generator().manual_seed(9)
    w = Fp8Pair((2, n, k), form)
    packed, (values, scales) = w.packed.to(device), w.to(device)
    a, bias = (torch.randn(shape, generator=generator).to(device) for shape in ((2, 5, k), (2, n)))
    a = a.bfloat16()
    d, wanted = GuardedOutput((5, n), torch.float32, device), torch.empty((5, n), device=device)
    for c in (None, torch.ones((5, n), device=device)):
        deep_gemm.bf16_fp8_gemm_nt(a[0], packed[0], wanted, c, bias=bias[0])
        deep_gemm.bf16_fp8_gemm_nt(a[0], (values[0], scales[0]), d.tensor, c, bias=bias[0])
        d.check()
        assert torch.equal(d.tensor, wanted)
    counts, layout = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([5, 3], [1] * 5))
    both = [torch.zeros((2, 5, n), device=device) for _ in range(2)]
    for weights, out in zip(((values, scales), packed), both, strict=True):
        deep_gemm.m_grouped_bf16_fp8_gemm_nt_masked(a, weights, out, counts, 5, bias=bias)
    assert torch.equal(both[0][0], both[1][0])
    assert torch.equal(both[0][1, :3], both[1][1, :3])
    both = [torch.zeros((5, n), device=device) for _ in range(2)]
    for weights, out in zip(((values, scales), packed), both, strict=True):
        deep_gemm.m_grouped_bf16_fp8_gemm_nt_contiguous(a[0], weights, out, layout, bias=bias)
    assert torch.equal(*both)


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
def test_fp8_weights_in_blocks_whose_lines_start_anywhere(device) -> None:
    w = Fp8Pair((24, 144))
    room = torch.zeros((24, 150), dtype=torch.uint8, device=device).view(torch.float8_e4m3fn)
    values = room[:, 3:147]
    values.view(torch.uint8).copy_(w.values.view(torch.uint8))
    a = torch.randn((3, 144), generator=torch.Generator().manual_seed(1)).to(torch.float16).to(device)
    d, wanted = torch.empty((3, 24), device=device), torch.empty((3, 24), device=device)
    deep_gemm.bf16_fp8_gemm_nt(a, (values, w.scales.to(device)), d)
    deep_gemm.bf16_fp8_gemm_nt(a, w.packed.to(device), wanted)
    assert torch.equal(d, wanted)


@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
def test_columns_of_nan_weights_in_blocks_are_nan(device) -> None:
    values, scales = Fp8Pair((2, 130, 272)).to(device)
    bits = values.view(torch.uint8)
    for expert, row, k in ((0, 0, 0), (0, 129, 271), (1, 70, 130)):
        bits[expert, row, k] = 0x7F | 0x80 * expert
    a = torch.randn((2, 5, 272), generator=torch.Generator().manual_seed(9)).bfloat16().to(device)
    d = torch.zeros((2, 5, 130), device=device)
    counts = torch.tensor([5, 5], dtype=torch.int32, device=device)
    deep_gemm.m_grouped_bf16_fp8_gemm_nt_masked(a, (values, scales), d, counts, 5)
    found = [(expert, column) for expert in range(2) for column in range(130) if d[expert, :, column].isnan().all()]
    assert found == [(0, 0), (0, 129), (1, 70)]
    assert d.isnan().sum() == 15


def test_fp8_weights_in_blocks_are_compiled_as_one_graph() -> None:
    w, a = Fp8Pair((24, 256)), torch.randn((3, 256), generator=torch.Generator().manual_seed(6)).bfloat16()

    def step(x, values, scales):
        d = torch.zeros((3, 24))
        deep_gemm.bf16_fp8_gemm_nt(x, (values, scales), d)
        return d * 2

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(a, w.values, w.scales), step(a, w.values, w.scales))


def test_products_of_fp8_weights_in_blocks_without_k_are_their_bias() -> None:
    pair = torch.zeros((24, 0)).to(torch.float8_e4m3fn), torch.ones((1, 0))
    d, bias = torch.full((3, 24), torch.nan), torch.arange(24.0)
    deep_gemm.bf16_fp8_gemm_nt(torch.empty((3, 0), dtype=torch.bfloat16), pair, d)
    assert not d.any()
    deep_gemm.bf16_fp8_gemm_nt(torch.empty((3, 0), dtype=torch.bfloat16), pair, d, bias=bias)
    assert torch.equal(d, bias.expand(3, 24))


E4M3_ZEROS = torch.zeros(16, 128).to(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("w", "error", "message"),
    [
        ((torch.zeros(16, 128), torch.zeros(1, 1)), TypeError, "PackedWeights or float8_e4m3fn .*, got float32"),
        ((E4M3_ZEROS, torch.zeros(16, 1)), ValueError, r"w's scales must be \[1, 1\] \(one float32 per 128 rows and"),
        ((E4M3_ZEROS, torch.zeros(1, 1).double()), TypeError, "w's scales must be float32, float8_e8m0fnu or int32"),
        ((E4M3_ZEROS.T.contiguous().T, torch.zeros(1, 1)), ValueError, "w must have K contiguous"),
        ((E4M3_ZEROS[:, :64], torch.zeros(1, 1)), ValueError, "w has K=64 but a has K=128"),
        ((E4M3_ZEROS[None], torch.zeros(1, 1, 1)), ValueError, r"w must be \[N, K\]|w must have 2 dimensions"),
        (torch.zeros(16, 128), TypeError, r"w must be a pair .* or PackedWeights, got .*: its scales are missing"),
    ],
)
def test_pairs_of_fp8_weights_that_cannot_be_are_refused(w, error, message) -> None:
    a = torch.zeros((8, 128), dtype=torch.bfloat16)
    d = GuardedOutput((8, 16), torch.float32, "cpu")
    with pytest.raises(error, match=message):
        deep_gemm.bf16_fp8_gemm_nt(a, w, d.tensor)
    d.assert_untouched()


@pytest.mark.gpu
def test_a_graph_packs_the_fp8_weights_of_the_moment(cuda) -> None:
    a = torch.randn((16, 512), generator=torch.Generator().manual_seed(6)).bfloat16().to(cuda)
    w, other = Fp8Pair((256, 512)).to(cuda), Fp8Pair((256, 512), seed=9).to(cuda)
    d, wanted = torch.empty((16, 256), device=cuda), torch.empty((16, 256), device=cuda)
    deep_gemm.bf16_fp8_gemm_nt(a, w, d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.bf16_fp8_gemm_nt(a, w, d)
    for mine, new in zip(w, other, strict=True):
        mine.view(torch.uint8).copy_(new.view(torch.uint8))
    deep_gemm.bf16_fp8_gemm_nt(a, w, wanted)
    graph.replay()
    assert torch.equal(d, wanted)
