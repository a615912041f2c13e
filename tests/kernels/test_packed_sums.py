"""INT32 sums of packed weights: exact, of codes that no scale multiplies, as `int8_gemm_nt` has them."""

from __future__ import annotations

import pytest
import torch
from devices import TAKE_PACKED
from grouped_inputs import alignment_of
from inputs import GuardedOutput

import deep_gemm
from deep_gemm.utils import pack_int4

NAMES = ("int4_gemm_nt", "int8_int4_gemm_nt")
SIZES = [(5, 136, 272), (70, 40, 640), (520, 24, 144)]  # of the last one weights may be unpacked first


class Codes:
    """Tokens, and weights of several experts or of one, with zero points or without."""

    def __init__(self, name: str, m: int, n: int, k: int, experts: int = 0, zeros: bool = False, device="cpu") -> None:
        generator = torch.Generator().manual_seed(m + n)
        int4 = name.startswith("int4")
        low, high = (-8, 8) if int4 else (-128, 128)
        self.tokens = torch.randint(low, high, (m, k), generator=generator, dtype=torch.int8)
        self.a = (pack_int4(self.tokens) if int4 else self.tokens).to(device)
        shape = (experts, n) if experts else (n,)
        self.q = torch.randint(0 if zeros else -8, 16 if zeros else 8, (*shape, k), generator=generator).to(torch.int8)
        points = torch.randint(0, 16, shape, generator=generator, dtype=torch.int32) if zeros else None
        self.w = deep_gemm.pack_weights(
            self.q.to(device),
            torch.rand(shape, generator=generator).to(device),
            None if points is None else points.to(device),
            element="uint4" if zeros else "int4",
            activations="int4" if int4 else "int8",
        )
        self.weights = self.q.double() - (0 if points is None else points[..., None])

    def sums(self, rows: slice = slice(None), expert: int | None = None) -> torch.Tensor:
        w = self.weights if expert is None else self.weights[expert]
        return (self.tokens[rows].double() @ w.T).to(torch.int32)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("added", ["nothing", "c", "d"])
def test_dense(device, name, size, zeros, added) -> None:
    m, n, k = size
    x = Codes(name, m, n, k, zeros=zeros, device=device)
    out = GuardedOutput((m, n), torch.int32, device)
    start = torch.arange(m * n, dtype=torch.int32).view(m, n) * 40503
    c = None
    if added != "nothing":
        c = out.tensor if added == "d" else torch.empty_like(out.tensor)
        c.copy_(start)
    getattr(deep_gemm, name)(x.a, x.w, out.tensor, c)
    out.check()
    assert torch.equal(out.tensor.cpu(), x.sums() + (start if c is not None else 0))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("device", TAKE_PACKED, indirect=True)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("grouping", ["contiguous", "psum", "masked"])
def test_experts(device, name, grouping) -> None:
    x = Codes(name, 128, 72, 272, experts=2, device=device)
    wanted = torch.stack([x.sums(slice(64), 0), x.sums(slice(64, 128), 1)])
    d = torch.full((2, 64, 72), -1, dtype=torch.int32, device=device)
    if grouping == "masked":
        counts = torch.tensor([64, 64], dtype=torch.int32, device=device)
        getattr(deep_gemm, f"m_grouped_{name}_masked")(x.a.view(2, 64, -1), x.w, d, counts, 64)
    else:
        psum = grouping == "psum"
        layout = torch.tensor([64, 128] if psum else [0] * 64 + [1] * 64, dtype=torch.int32, device=device)
        with alignment_of(64):
            function = getattr(deep_gemm, f"m_grouped_{name}_contiguous")
            function(x.a, x.w, d.view(128, 72), layout, use_psum_layout=psum)
    assert torch.equal(d.cpu(), wanted)


def test_no_k() -> None:
    x = Codes("int4_gemm_nt", 8, 16, 128)
    d = torch.full((8, 16), 7, dtype=torch.int32)
    deep_gemm.int4_gemm_nt(x.a * 0, x.w, d, c=d)
    assert (d == 7).all()


@pytest.mark.parametrize("name", NAMES)
def test_as_an_operator(name) -> None:
    x = Codes(name, 8, 16, 128)
    d = torch.full((8, 16), -1, dtype=torch.int32)

    def step(a):
        getattr(deep_gemm, name)(a, x.w, d)
        return d + 0

    torch._dynamo.reset()
    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(x.a), x.sums())


@pytest.mark.parametrize("name", NAMES)
def test_rejections(name) -> None:
    function = getattr(deep_gemm, name)
    x, q = Codes(name, 8, 16, 256), torch.zeros((16, 256), dtype=torch.int8)
    kinds = {"element": "int4", "activations": "int4" if name.startswith("int4") else "int8"}
    groups = deep_gemm.pack_weights(q, torch.ones((16, 2)), group_size=128, **kinds)
    for given, w, dtype, error, message in [
        (
            x.a,
            x.w,
            torch.float32,
            TypeError,
            r"d must be int32 where operands have no scales \(give 1.0\), got float32",
        ),
        ((x.a, 1.0), x.w, torch.int32, TypeError, "d must be a floating dtype where operands have scales, got int32"),
        (x.a, groups, torch.int32, ValueError, r"w must have one scale a channel .* got groups of 128"),
    ]:
        out = GuardedOutput((8, 16), dtype, "cpu")
        with pytest.raises(error, match=message):
            function(given, w, out.tensor)
        out.assert_untouched()
    out = GuardedOutput((8, 16), torch.int32, "cpu")
    with pytest.raises(ValueError, match=r"bias must be None where d is int32|bias must have a dtype"):
        function(x.a, x.w, out.tensor, bias=torch.ones(16))
    out.assert_untouched()


@pytest.mark.parametrize("name", ["fp8_int4_gemm_nt", "fp8_fp4_gemm_nt"])
def test_tokens_of_fp8_must_have_scales(name) -> None:
    element = "e2m1" if "fp4" in name else "int4"
    group = 32 if element == "e2m1" else None
    q = torch.ones((16, 128), dtype=torch.int8)
    scales = torch.ones((16, 4) if group else (16,))
    w = deep_gemm.pack_weights(q, scales, element=element, activations="fp8", group_size=group)
    with pytest.raises(TypeError, match=r"a must be a pair .* its scales are missing"):
        getattr(deep_gemm, name)(torch.ones((8, 128)).to(torch.float8_e4m3fn), w, torch.empty((8, 16)))
