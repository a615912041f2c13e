"""A whole MoE layer in one call (`fp8_mega_moe`), against FP64."""

from __future__ import annotations

from typing import Any

import layer_weights
import pytest
import torch
from call_checks import settings
from devices import BUT_SM100, EVERY_DEVICE, ON_GPU, on_simulator
from inputs import GuardedOutput, random_values

import deep_gemm
from deep_gemm import mega_moe_products
from deep_gemm.utils import per_token_cast_to_fp8

EXPERTS, TOKENS, SLOTS, HIDDEN, INNER = 4, 13, 3, 256, 256
ROUTINGS = {
    "uneven": lambda at: (at * at + 3 * at) % EXPERTS,
    "an empty expert": lambda at: at % (EXPERTS - 1),
    "one expert, thrice": lambda at: at * 0 + 2,
    "some of none": lambda at: at % 7 - 2,
    "all of none": lambda at: at * 0 - 1,
}


def ids_of(routing: str, tokens: int, device: torch.device) -> torch.Tensor:
    ids = ROUTINGS[routing](torch.arange(tokens * SLOTS, device=device).view(tokens, SLOTS)).to(torch.int32)
    return ids.where(ids < EXPERTS, -1)


class Layer:
    def __init__(self, device: torch.device, weights: str = "fp8", persistent: bool = False) -> None:
        self.device = device
        (l1, self.l1), (l2, self.l2) = layer_weights.made(weights, EXPERTS, HIDDEN, INNER, device)
        self.weights = deep_gemm.transform_weights_for_mega_moe_sm90(l1, l2)
        sizes = EXPERTS, TOKENS + 9, SLOTS, HIDDEN, INNER
        self.buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, *sizes, device=device, persistent=persistent)
        self.x = random_values((TOKENS, HIDDEN), device, 7).bfloat16()
        self.factors = random_values((TOKENS, SLOTS), device, 8).abs()

    def dispatch(self, routing: str, tokens: int = TOKENS) -> None:
        b, ids = self.buffer, ids_of(routing, TOKENS, self.device)
        deep_gemm.mega_moe_pre_dispatch_sm90(
            self.x, ids, self.factors, b.x, b.x_sf, b.topk_idx, b.topk_weights, num_tokens=tokens
        )

    def run(self, y: torch.Tensor, **more: Any) -> torch.Tensor:
        deep_gemm.fp8_mega_moe(y, *self.weights, self.buffer, **more)
        return y

    def wanted(self, routing: str, clamp: float = float("inf")) -> tuple[torch.Tensor, torch.Tensor]:
        """In FP64, but for what the layer rounds: tokens, and rows between the products, to E4M3. And how far a result
        may be from it because what is rounded there lies so near a tie that sums of Hopper's tensor cores, which keep
        13 bits (4e-5 of sum |a||b|), may take the neighbour: of few numbers, each 2^-4 away."""
        q, s = per_token_cast_to_fp8(self.x, use_ue8m0=False)
        x = q.double() * s.double().repeat_interleave(128, 1)
        total, neighbours = torch.zeros(2, TOKENS, HIDDEN, dtype=torch.float64, device=self.device)
        ids = ids_of(routing, TOKENS, self.device)
        exact = 1e-6 if self.device.type == "cpu" else 4e-5
        for slot in range(SLOTS):
            for expert in range(EXPERTS):
                rows = (ids[:, slot] == expert).nonzero().flatten()
                if len(rows) == 0:
                    continue
                gate, up = (x[rows] @ self.l1[expert].T).chunk(2, -1)
                of_gate, of_up = (exact * (x[rows].abs() @ self.l1[expert].abs().T)).chunk(2, -1)
                gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
                factors = self.factors[rows, slot, None].double()
                silu = gate * torch.sigmoid(gate)
                inner = silu * up * factors
                q, s = per_token_cast_to_fp8(inner.float(), use_ue8m0=False)
                s = s.double().repeat_interleave(128, 1)
                total[rows] += (q.double() * s) @ self.l2[expert].T
                # The largest slope of silu is 1.1; the scale comes from the largest of a group, inexact alike.
                far = (1.1 * of_gate * up.abs() + silu.abs() * of_up) * factors
                far += inner.abs() * (far / inner.abs().clamp(min=1e-30)).view(len(rows), -1, 128).gather(
                    2, inner.abs().view(len(rows), -1, 128).argmax(2, keepdim=True)
                ).repeat_interleave(128, 2).view_as(inner)
                codes = [((inner + sign * far) / s).clamp(-448, 448).to(torch.float8_e4m3fn) for sign in (-1, 1)]
                steps = (codes[1].double() - codes[0].double()).abs() * s
                neighbours[rows] += steps @ self.l2[expert].abs().T
        return total, neighbours


def assert_near(y: torch.Tensor, wanted: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Token by token, beyond the neighbours: BF16 has 2^-9 of a number."""
    total, neighbours = wanted
    wrong = ((y.double() - total).abs() - neighbours).clamp(min=0).norm(dim=-1)
    assert (wrong <= 4e-3 * total.norm(dim=-1)).all(), (wrong / total.norm(dim=-1)).max()
    assert neighbours.norm() <= 0.3 * total.norm()  # else this would see nothing


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
@pytest.mark.parametrize("weights", ["fp8", "int4", "e2m1"])
def test_against_fp64(device, weights) -> None:
    layer = Layer(device, weights)
    for routing in ROUTINGS:
        layer.dispatch(routing)
        y = GuardedOutput((TOKENS, HIDDEN), torch.bfloat16, device)
        layer.run(y.tensor)
        y.check()
        assert_near(y.tensor, layer.wanted(routing))


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
def test_packed_weights_round_alike_in_either_way(device, monkeypatch) -> None:
    layer = Layer(device, "int4")
    layer.dispatch("uneven")
    deep_gemm.set_batch_invariant(True)
    try:
        found = []
        for rows in (0, TOKENS * SLOTS + 1):
            monkeypatch.setattr(mega_moe_products, "QUANTISE_PACKED_FROM", rows)
            found.append(layer.run(torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)))
    finally:
        deep_gemm.set_batch_invariant(False)
    assert torch.equal(*found)


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
def test_rows_with_and_without_indices(device, monkeypatch) -> None:
    """SM90 gives many rows of an expert indices; equal bits."""
    layer = Layer(device)
    kinds = []
    route = deep_gemm.routing.route

    def noted(*given: Any, **more: Any) -> deep_gemm.routing.Routing:
        kinds.append(more["kind"])
        return route(*given, **more)

    monkeypatch.setattr(deep_gemm.routing, "route", noted)
    for name in ROUTINGS:
        layer.dispatch(name)
        found = []
        for rows in (range(0), range(1, 1024)):
            monkeypatch.setattr(mega_moe_products, "_ROWS_WITH_INDICES", rows)
            found.append(layer.run(torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)))
        assert torch.equal(*found)
    assert kinds == ["psum", "indices" if layer.buffer.arch == "sm90" else "psum"] * len(ROUTINGS)


class TestOneLaunch:
    """`persistent=True`: rows of `down` wait for those of gate and up by counters, which are 0 again afterwards."""

    def both(self, layer: Layer, ready: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
        results = []
        for counters in (None, ready):
            layer.dispatch(name)
            monkeypatch.setattr(layer.buffer, "ready", counters)
            y = GuardedOutput((TOKENS, HIDDEN), torch.bfloat16, layer.device)
            results.append(layer.run(y.tensor, activation_clamp=2.0))
            y.check()
        assert torch.equal(*results)
        assert not ready.any()
        return results[1]

    @pytest.mark.parametrize("device", EVERY_DEVICE, indirect=True)
    def test_equal_bits_and_fp64(self, device, monkeypatch) -> None:
        layer = Layer(device, persistent=True)
        for name in ROUTINGS:
            y = self.both(layer, layer.buffer.ready, name, monkeypatch)
            assert_near(y, layer.wanted(name, 2.0))

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("device", [*on_simulator("random"), *ON_GPU], indirect=True)
    @pytest.mark.parametrize("weights", ["int4", "uint4", "e2m1"])
    def test_packed_weights(self, device, weights, monkeypatch) -> None:
        """A pair of CTAs has the columns that share a scale, and converts its own weights."""
        layer = Layer(device, weights, persistent=True)
        for name in ROUTINGS:
            y = self.both(layer, layer.buffer.ready, name, monkeypatch)
            assert_near(y, layer.wanted(name, 2.0))

    @pytest.mark.parametrize("device", [*on_simulator("random"), *ON_GPU], indirect=True)
    def test_clusters_that_share_rows(self, device, monkeypatch) -> None:
        """Many rows an expert: tiles of 128 by 128, whose D a warp of its own copies away; and an odd wave."""
        for name, number in {"EXPERTS": 2, "TOKENS": 160}.items():
            monkeypatch.setitem(globals(), name, number)
        layer = Layer(device, persistent=True)
        self.both(layer, layer.buffer.ready, "some of none", monkeypatch)
        with settings(device, num_sms=6):
            self.both(layer, layer.buffer.ready, "uneven", monkeypatch)

    def test_where_there_is_no_such_kernel(self) -> None:
        with (
            deep_gemm.simulator.options(target="sm_80"),
            pytest.raises(ValueError, match="persistent must be False on a GPU with kernels for sm80: only SM90 has"),
        ):
            deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, 2, 4, 2, 256, 128, device="cpu", persistent=True)

    def test_of_other_alignments(self) -> None:
        """The counters are for the alignment that there was."""
        layer = Layer(torch.device("cpu"), persistent=True)
        layer.buffer.ready = layer.buffer.ready[:1]
        layer.dispatch("uneven")
        with pytest.raises(ValueError, match=r"ready must be \[\d+\] or more, contiguous, got shape \[1\]"):
            layer.run(torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16))


@pytest.mark.parametrize("device", BUT_SM100, indirect=True)
def test_limits_counts_and_equal_bits(device) -> None:
    layer = Layer(device)
    layer.dispatch("uneven")
    before = layer.buffer.buffer.clone()
    stats = torch.arange(EXPERTS, dtype=torch.int32, device=device)
    strided = torch.empty(TOKENS, HIDDEN + 8, dtype=torch.bfloat16, device=device)[:, :HIDDEN]
    first = layer.run(
        torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device),
        activation_clamp=0.5,
        cumulative_local_expert_recv_stats=stats,
    )
    assert_near(first, layer.wanted("uneven", 0.5))
    assert torch.equal(first, layer.run(strided, activation_clamp=0.5, fast_math=False, num_tokens_bound=TOKENS))
    ids = ids_of("uneven", TOKENS, device)
    assert stats.tolist() == [i + int((ids == i).sum()) for i in range(EXPERTS)]
    assert torch.equal(layer.buffer.buffer, before)
    # The first tokens do not depend on how many there are.
    few = layer.run(torch.empty(5, HIDDEN, dtype=torch.bfloat16, device=device), activation_clamp=0.5)
    assert torch.equal(few, first[:5])


@pytest.mark.parametrize("device", on_simulator("any"), indirect=True)
def test_pre_dispatch(device) -> None:
    layer, b = Layer.__new__(Layer), deep_gemm.get_symm_buffer_for_mega_moe(None, EXPERTS, 8, SLOTS, HIDDEN, INNER)
    layer.buffer, layer.device = b, device
    layer.x, layer.factors = random_values((9, HIDDEN), device, 7).bfloat16(), random_values((9, SLOTS), device, 8)
    assert b.topk_idx.shape == (128, SLOTS)
    b.topk_idx.fill_(3), b.topk_weights.fill_(5)
    ids = ids_of("uneven", 9, device)
    deep_gemm.mega_moe_pre_dispatch_sm90(
        layer.x, ids, layer.factors, b.x, b.x_sf, b.topk_idx, b.topk_weights, 7, routed_scaling_factor=2.5
    )
    q, s = per_token_cast_to_fp8(layer.x[:7], use_ue8m0=False)
    assert torch.equal(b.x[:7].view(torch.uint8), q.view(torch.uint8))
    assert torch.equal(b.x_sf[:7], s)
    assert not b.x[7:].view(torch.uint8).any()
    assert torch.equal(b.topk_idx[:7], ids[:7].long())
    assert torch.equal(b.topk_weights[:7], layer.factors[:7] * 2.5)
    assert (b.topk_idx[7:] == -1).all()
    assert not b.topk_weights[7:].any()


def test_rows_of_weights_in_eights() -> None:
    rows = torch.arange(512)[None, :, None].expand(1, 512, 128)
    data = (rows // 8 % 128).to(torch.uint8).view(torch.float8_e4m3fn)
    scales = torch.arange(4.0).view(1, 4, 1)
    down = torch.zeros(1, 128, 256).to(torch.float8_e4m3fn), torch.ones(1, 1, 2)
    (moved, kept), same = deep_gemm.transform_weights_for_mega_moe_sm90((data, scales), down)
    assert kept is scales
    assert same is down
    assert moved.view(torch.uint8)[0, ::8, 0].tolist() == [i // 2 + i % 2 * 32 for i in range(64)]


def test_likely_rows() -> None:
    assert [
        deep_gemm.get_block_m_for_mega_moe(1, 64, 4096, tokens, 8, "fp8xfp8") for tokens in (0, 128, 136, 4096)
    ] == [
        16,
        16,
        32,
        128,
    ]


@pytest.mark.parametrize("device", ON_GPU, indirect=True)
def test_a_graph_reads_what_the_buffer_has(device) -> None:
    layer = Layer(device)
    layer.dispatch("uneven")
    y = torch.empty(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)
    layer.run(y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer.run(y)
    for routing in ROUTINGS:
        layer.dispatch(routing)
        graph.replay()
        replayed = y.clone()
        assert torch.equal(replayed, layer.run(torch.empty_like(y)))


class TestWrongCalls:
    Y = torch.empty(4, 256, dtype=torch.bfloat16)

    @pytest.fixture
    def parts(self) -> Any:
        fp8 = torch.float8_e4m3fn
        l1 = torch.zeros(2, 256, 256).to(fp8), torch.ones(2, 2, 2)
        l2 = torch.zeros(2, 256, 128).to(fp8), torch.ones(2, 2, 1)
        return l1, l2, deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, 2, 4, 2, 256, 128, device="cpu")

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"recipe": (1, 1, 128)}, r"recipe must be \(128, 128, 128\)"),
            ({"activation": "situ"}, "activation must be 'swiglu', got 'situ'"),
            ({"activation_clamp": -1.0}, "limit must be None or a number above 0, got -1.0"),
            ({"num_tokens_bound": 3}, "num_tokens_bound must be at least the 4 tokens of y, got 3"),
            ({"y": torch.empty(4, 256)}, "y must be bfloat16, got torch.float32"),
            (
                {"y": torch.empty(129, 256, dtype=torch.bfloat16)},
                "y must have at most the buffer's 128 tokens, got 129",
            ),
            ({"y": torch.empty(4, 128, dtype=torch.bfloat16)}, r"y must be \[any, 256\], got \[4, 128\]"),
            ({"cumulative_local_expert_recv_stats": torch.zeros(3, dtype=torch.int32)}, r"must be \[2\], got \[3\]"),
        ],
    )
    def test_of_a_layer(self, parts, more, message) -> None:
        l1, l2, buffer = parts
        y = more.pop("y", self.Y)
        with pytest.raises((ValueError, TypeError), match=message):
            deep_gemm.fp8_mega_moe(y, l1, l2, buffer, **more)

    def test_of_weights(self, parts) -> None:
        l1, l2, buffer = parts
        with pytest.raises(
            ValueError, match=r"l1_weights must be \[2, 256, 256\] as the buffer says, got \[2, 256, 128\]"
        ):
            deep_gemm.fp8_mega_moe(self.Y, l2, l2, buffer)
        with pytest.raises(TypeError, match="the scales of l2_weights must be float32"):
            deep_gemm.fp8_mega_moe(self.Y, l1, (l2[0], l2[1].int()), buffer)
        codes, scales = torch.zeros(2, 256, 256, dtype=torch.int8), torch.ones(2, 256, 2)
        plain = deep_gemm.pack_weights(codes, scales, element="int4", activations="fp8", group_size=128)
        with pytest.raises(
            ValueError, match="l1_weights must be packed with gate_up='halves' or 'interleaved', got None"
        ):
            deep_gemm.transform_weights_for_mega_moe_sm90(plain, l2)

    def test_of_a_destroyed_buffer(self, parts) -> None:
        l1, l2, buffer = parts
        buffer.destroy()
        with pytest.raises(TypeError, match="sym_buffer must be an SM90SymmBuffer that was not destroyed"):
            deep_gemm.fp8_mega_moe(self.Y, l1, l2, buffer)

    @pytest.mark.parametrize(
        ("sizes", "more", "message"),
        [
            ((2, 4, 2, 200, 128), {}, "hidden must be a multiple of 128, got 200"),
            ((2, 4, 2, 256, 4224), {}, "intermediate_hidden must be at most 4096, got 4224"),
            ((2, 4, 33, 256, 128), {}, "num_topk must be at most 32, got 33"),
            ((2, 4, 2, 256, 128), {"use_fp8_dispatch": False}, "use_fp8_dispatch must be True"),
            ((2, 4, 2, 256, 128), {"num_shared_experts": 1}, "num_shared_experts must be 0, got 1"),
            ((2, 4, 2, 256, 128), {"mma_type": "bf16xbf16"}, "mma_type must be 'fp8xfp8' or 'fp8xfp4'"),
        ],
    )
    def test_of_a_buffer(self, sizes, more, message) -> None:
        with pytest.raises(ValueError, match=message):
            deep_gemm.get_symm_buffer_for_mega_moe(more.pop("group", None), *sizes, device="cpu", **more)

    def test_of_blackwell(self) -> None:
        with (
            deep_gemm.simulator.options(target="sm_100a"),
            pytest.raises(NotImplementedError, match="must be on a GPU with kernels for SM80 or SM90, got sm100"),
        ):
            deep_gemm.get_symm_buffer_for_mega_moe(None, 2, 4, 2, 256, 128, device="cpu")

    def test_of_a_dispatch(self, parts) -> None:
        b, x = parts[2], torch.zeros(4, 256, dtype=torch.bfloat16)
        ids, weights = torch.zeros(4, 2, dtype=torch.int32), torch.zeros(4, 2)
        views = b.x, b.x_sf, b.topk_idx, b.topk_weights
        with pytest.raises(ValueError, match="x must have at least num_tokens=5 rows, got 4"):
            deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, weights, *views, 5)
        with pytest.raises(ValueError, match="num_tokens must be at most the 128 that the buffer has room for"):
            deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, weights, *views, 129)
        with pytest.raises(ValueError, match="group_size must be 128, got 32"):
            deep_gemm.mega_moe_pre_dispatch_sm90(x, ids, weights, *views, 4, group_size=32)
        with pytest.raises(TypeError, match="x must be bfloat16"):
            deep_gemm.mega_moe_pre_dispatch_sm90(x.float(), ids, weights, *views, 4)
