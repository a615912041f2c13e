"""`GroupedExperts` by DeepEP's buffers, which a stand-in is (support/deep_ep_stub.py): never run with DeepEP itself."""

from __future__ import annotations

from types import SimpleNamespace

import deep_ep_stub
import pytest
import torch
from logits_inputs import generator_of

from deep_gemm import nn
from deep_gemm.nn import deep_ep

HIDDEN, INNER, EXPERTS, TOKENS = 128, 64, 4, (13, 0, 5)


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator_of(seed))


def given(rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Some choices are no expert's, and some tokens stay where they are."""
    tokens, experts = TOKENS[rank], EXPERTS * len(TOKENS)
    ids = torch.rand(tokens, experts, generator=generator_of(30 + rank)).topk(3).indices
    ids[:2, 0] = torch.tensor([-1, experts])[: len(ids)]
    return random(tokens, HIDDEN, seed=rank).bfloat16(), ids, random(tokens, 3, seed=60 + rank).abs()


def whole_layer(precision: str) -> nn.GroupedExperts:
    torch.manual_seed(0)
    return nn.GroupedExperts(EXPERTS * len(TOKENS), HIDDEN, INNER, precision=precision)


def part_of(whole: nn.GroupedExperts, group: deep_ep_stub.Group) -> nn.GroupedExperts:
    part = nn.GroupedExperts(whole.num_experts, HIDDEN, INNER, precision=whole.gate_up.precision, group=group)
    own = slice(group.rank() * EXPERTS, (group.rank() + 1) * EXPERTS)
    part.load_state_dict({name: value[own] for name, value in whole.state_dict().items()})
    return part


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-9))


@pytest.mark.parametrize(("precision", "sent"), [("fp8", torch.float8_e4m3fn), ("bf16", torch.bfloat16)])
def test_rows_travel_and_come_back(precision, sent) -> None:
    """As one process has it: results of processes are rounded to BF16 and added up."""
    whole = whole_layer(precision)

    def of_rank(group, buffer):
        layer = part_of(whole, group)
        layer.deep_ep = buffer
        found = []
        with torch.no_grad():
            for layer.masked_up_to in (0, 128):
                found.append(layer(*given(group.rank())))
        assert buffer.sent == [sent, sent]
        return found

    for rank, found in enumerate(deep_ep_stub.in_processes(len(TOKENS), of_rank)):
        with torch.no_grad():
            for y, whole.masked_up_to in zip(found, (0, 128), strict=True):
                wanted = whole(*given(rank))
                assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
                assert distance(y, wanted) < 1e-2


def test_packed_weights_take_rows_that_travelled_in_bf16() -> None:
    """Integer activations have a scale for a whole row, which DeepEP does not carry."""
    whole = whole_layer("bf16").quantized(element="int4", activations="int8", group_size=64)

    def of_rank(group, buffer):
        own = slice(group.rank() * EXPERTS, (group.rank() + 1) * EXPERTS)
        layer = nn.GroupedExperts.from_weights(whole.gate_up.weights[own], whole.down.weights[own], group=group)
        layer.deep_ep = buffer
        with torch.no_grad():
            y = layer(*given(group.rank()))
        assert buffer.sent == [torch.bfloat16]
        return y

    for rank, y in enumerate(deep_ep_stub.in_processes(len(TOKENS), of_rank)):
        with torch.no_grad():
            assert distance(y, whole(*given(rank))) < 1e-2


def test_gradients_travel_back() -> None:
    whole = whole_layer("fp8")

    def leaves(rank: int):
        x, ids, weights = given(rank)
        return x.requires_grad_(), ids, weights.requires_grad_()

    def of_rank(group, buffer):
        layer = part_of(whole, group)
        layer.deep_ep = buffer
        x, ids, weights = leaves(group.rank())
        y = layer(x, ids, weights)
        y.backward(random(*y.shape, seed=90 + group.rank()).bfloat16())
        return y, x.grad, weights.grad, layer.gate_up.weight.grad, layer.down.weight.grad

    found = deep_ep_stub.in_processes(len(TOKENS), of_rank)
    for rank, (y, dx, dweights, *_) in enumerate(found):
        x, ids, weights = leaves(rank)
        wanted = whole(x, ids, weights)
        wanted.backward(random(*y.shape, seed=90 + rank).bfloat16())
        assert distance(y.detach(), wanted.detach()) < 1e-2
        assert distance(dx, x.grad) < 2e-2
        assert distance(dweights, weights.grad) < 2e-2
    for at, wanted in ((3, whole.gate_up.weight.grad), (4, whole.down.weight.grad)):
        # 128 tokens share a scale, of one process in one case, of all in the other.
        assert distance(torch.cat([each[at] for each in found]), wanted) < 6e-2


class Config:
    def __init__(self, size: int) -> None:
        self.get_nvl_buffer_size_hint = lambda hidden_bytes, ranks: 10 * hidden_bytes * size
        self.get_rdma_buffer_size_hint = lambda hidden_bytes, ranks: hidden_bytes + ranks


class Made:
    def __init__(self, group, nvlink: int, network: int) -> None:
        self.sizes = group, nvlink, network

    @staticmethod
    def get_dispatch_config(ranks: int) -> Config:
        assert ranks in (2, 4, 8), "Unsupported number of EP ranks"
        return Config(2)

    get_combine_config = staticmethod(lambda ranks: Config(1))


def test_a_buffer_is_made_once_for_a_group_and_grows(monkeypatch) -> None:
    monkeypatch.setattr(deep_ep, "module", lambda: SimpleNamespace(Buffer=Made))
    group, other = deep_ep_stub.Group(4, 0), deep_ep_stub.Group(3, 0)
    buffer = deep_ep.made_buffer(group, 256)
    assert buffer.sizes == (group, 2 * 10 * 2 * 256, 2 * 256 + 4)
    assert deep_ep.made_buffer(group, 128) is buffer
    assert deep_ep.made_buffer(group, 512).sizes[2] == 2 * 512 + 4
    assert deep_ep.made_buffer(other, 256) is None, "it has settings for some numbers of processes only"
    monkeypatch.setattr(deep_ep, "module", lambda: None)
    assert deep_ep.made_buffer(deep_ep_stub.Group(2, 0), 256) is None


def test_who_decides() -> None:
    group, x = deep_ep_stub.Group(2, 0), torch.empty(1, HIDDEN, dtype=torch.bfloat16)
    layer = nn.GroupedExperts(4, HIDDEN, INNER, group=group)
    assert deep_ep.buffer_of(layer, group, x) is None, "not on a GPU"
    layer.deep_ep = buffer = object()
    assert deep_ep.buffer_of(layer, group, x) is buffer
    with pytest.raises(TypeError, match=r"x must be bfloat16 with a multiple of 8 columns for DeepEP's buffer"):
        deep_ep.buffer_of(layer, group, x.float())
    layer.deep_ep = False
    assert deep_ep.buffer_of(layer, group, x) is None
