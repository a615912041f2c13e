"""Layers: results and gradients against FP64 of the same quantised numbers, states, checkpoints, compiled programs."""

from __future__ import annotations

import copy
import io
import json
import pickle
from dataclasses import replace

import pytest
import torch
from devices import ONE_OF_EACH_ARCH
from logits_inputs import generator_of
from torch.utils.checkpoint import checkpoint

import deep_gemm
from deep_gemm import epilogue, nn, pack_weights, quantize, routing
from deep_gemm.nn import gated_product, master
from deep_gemm.nn.numbers import fp8_rows, fp8_weights
from deep_gemm.nn.products import experts_product
from deep_gemm.utils import pack_int4, quantize_to_int4

ONE = ONE_OF_EACH_ARCH[:1]


@pytest.fixture(autouse=True)
def _equal_weights_each_time() -> None:
    torch.manual_seed(0)


def random(*shape: int, seed: int = 0, device: torch.device | str = "cpu") -> torch.Tensor:
    return torch.randn(shape, generator=generator_of(sum(shape) + seed)).to(device)


def value_of(scaled: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """In FP64."""
    q, s = scaled
    rows, k = (-(-extent // count) for extent, count in zip(q.shape[-2:], s.shape[-2:], strict=True))
    whole = s.repeat_interleave(128 if rows > 1 else 1, -2)[..., : q.shape[-2], :].repeat_interleave(128, -1)
    assert k <= 128
    return q.double() * whole[..., : q.shape[-1]].double()


# Hopper adds up FP8 with 13 bits.
EXACT = {"cpu": 1e-5, "cuda": 3e-4}


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    found, exact = found.detach().double(), exact.detach()
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
def test_fp8_linear_is_its_quantised_products(device) -> None:
    """y, dx and dw are the products of what was quantised, with as many tokens as no product takes for K."""
    layer = nn.FP8Linear(272, 144, device=device)
    x, dy = random(3, 43, 272, device=device).requires_grad_(), random(3, 43, 144, seed=1, device=device)
    y = layer(x)
    y.backward(dy)
    rows, of_rows = x.detach().view(-1, 272), dy.view(-1, 144)
    weight = value_of(fp8_weights(layer.weight.detach()))
    exact = value_of(fp8_rows(rows)) @ weight.T + layer.bias.double()
    assert distance(y.view(-1, 144), exact) < EXACT[device.type]
    assert distance(x.grad.view(-1, 272), value_of(fp8_rows(of_rows)) @ weight) < EXACT[device.type]
    columns = [value_of(fp8_rows(tensor.t().contiguous())) for tensor in (of_rows, rows)]
    assert distance(layer.weight.grad, columns[0] @ columns[1].T) < EXACT[device.type]
    assert distance(layer.bias.grad, of_rows.double().sum(0)) < 1e-6
    assert distance(y.view(-1, 144), rows.double() @ layer.weight.double().T + layer.bias.double()) < 0.05


def test_weights_are_quantised_once_a_step(monkeypatch) -> None:
    made = []
    monkeypatch.setattr(master, "operands_of", lambda *given, of=master.operands_of: made.append(1) or of(*given))
    layer = nn.FP8Linear(128, 128, bias=False, dtype=torch.bfloat16)
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
    x = random(16, 128)
    for step in range(1, 4):
        for _ in range(2):
            layer(x).square().sum().backward()
        assert len(made) == step
        optimiser.step()
    y = layer(x)
    layer.load_state_dict({"weight": torch.zeros(128, 128)})
    assert y.any()
    assert not layer(x).any()
    layer.weight.data.fill_(1.0)
    layer.requantize()
    assert layer(x).any()
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.weight.zero_()
    assert layer(x).any()
    assert not other(x).any()


def test_graphs_see_weights_that_are_written_later(monkeypatch) -> None:
    """What a CUDA graph would read, where capturing is only said: a GPU's graphs are in test_nn_graphs.py."""
    captured = []
    monkeypatch.setattr(master, "is_captured", lambda weight: bool(captured))
    layer = nn.FP8Linear(128, 128, bias=False)
    captured.append(1)
    with torch.no_grad():
        own = layer.operands(False)
        assert own[0].data_ptr() != layer.operands(False)[0].data_ptr(), "each capture has its own: memory of its pool"
        captured.clear()
        before = layer.operands(False)
        captured.append(1)
        of_graph = layer.operands(False)
        assert of_graph[0] is before[0]
        assert layer.operands(True)[0].data_ptr() != before[0].data_ptr(), "with gradients the graph quantises"
        captured.clear()
        layer.weight.mul_(-2)
        wanted = fp8_weights(layer.weight)
        layer(random(3, 128))
        assert all(torch.equal(found.float(), right.float()) for found, right in zip(of_graph, wanted, strict=False))
        layer.weight.data.mul_(-2)
        layer.requantize()
        assert torch.equal(of_graph[0].float(), fp8_weights(layer.weight)[0].float())


@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_gradients_of_experts(device, precision) -> None:
    """Products of rows of experts, one of which has none, against FP64 of what was quantised."""
    ids = torch.tensor([[0, 2], [2, 3], [-1, 0], [3, 2], [2, 0]], device=device)
    found = routing.route(ids, 4)
    rows = routing.gather(random(5, 144, device=device), found, clear=True).requires_grad_()
    weights = nn.experts.MasterWeights((4, 80, 144), precision=precision, device=device)
    dy = routing.gather(random(5, 80, seed=2, device=device), found, clear=True)
    y = experts_product(rows, weights.weight, *weights.operands(True), found.indices, found.ends)
    y.backward(dy)
    x, w = rows.detach(), weights.weight.detach()
    if precision == "fp8":
        values = value_of(fp8_rows(x)), value_of(fp8_rows(dy)), value_of(fp8_weights(w))
        columns = [value_of(fp8_rows(tensor.t().contiguous())).T for tensor in (x, dy)]
    else:
        values = tuple(tensor.bfloat16().double() for tensor in (x, dy, w))
        columns = [values[0], values[1]]
    for expert in range(4):
        own = (found.indices == expert)[:, None].double()
        mask = own.bool()[:, 0]
        if expert == 1:
            assert not weights.weight.grad[1].any()
            continue
        assert distance(y[mask], (values[0] @ values[2][expert].T)[mask]) < EXACT[device.type]
        assert distance(rows.grad[mask], (values[1] @ values[2][expert])[mask]) < EXACT[device.type]
        assert distance(weights.weight.grad[expert], (columns[1] * own).T @ (columns[0] * own)) < EXACT[device.type]
    assert not y[found.indices < 0].any()
    assert not rows.grad[found.indices < 0].any()


def exact_experts(layer: nn.GroupedExperts, x, ids, weights, gated) -> torch.Tensor:
    """Every expert for every token, in FP64."""
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for expert in range(layer.num_experts):
        both = x.double() @ layer.gate_up.weight[expert].double().T
        each = gated(both) @ layer.down.weight[expert].double().T
        out = out + each * ((ids == expert) * weights.double()).sum(1, keepdim=True)
    return out


def swiglu(both: torch.Tensor) -> torch.Tensor:
    gate, up = both.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def interleaved_swiglu(both: torch.Tensor) -> torch.Tensor:
    gate, up = both[:, ::2].clamp(max=7.0), both[:, 1::2].clamp(-7.0, 7.0)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def routed(tokens: int, experts: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    """Of which the last expert has none, and one choice is dropped."""
    ids = torch.rand(tokens, experts - 1, generator=generator_of(3)).topk(2).indices
    ids[2, 1] = -1
    return ids.to(device), torch.rand(tokens, 2, generator=generator_of(4)).to(device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize("gate", [None, epilogue.SwiGLU(7.0, 1.702, 1.0, "interleaved")])
@pytest.mark.parametrize(("precision", "bound"), [("fp8", 0.12), ("bf16", 0.01)])
def test_experts_train_and_serve(device, gate, precision, bound) -> None:
    layer = nn.GroupedExperts(3, 128, 128, gate=gate, precision=precision, device=device)
    ids, weights = routed(20, 3, device)
    x = random(20, 128, device=device).requires_grad_()
    weights.requires_grad_()
    exact = exact_experts(layer, x, ids, weights, swiglu if gate is None else interleaved_swiglu)
    asked = [x, weights, *layer.parameters()]
    dy = random(20, 128, seed=1, device=device)
    wanted = torch.autograd.grad(exact, asked, dy.double())
    y = layer(x, ids, weights)
    assert distance(y, exact) < bound
    for found, right in zip(torch.autograd.grad(y, asked, dy), wanted, strict=True):
        assert distance(found, right.double()) < bound
    with torch.no_grad():
        served = [layer(x, ids, weights, masked=masked) for masked in (False, True)]
        assert all(distance(y, exact) < bound for y in served)
        deep_gemm.set_batch_invariant(True, device)
        try:
            served = [layer(x, ids, weights, masked=masked) for masked in (False, True)]
        finally:
            deep_gemm.set_batch_invariant(False, device)
    assert torch.equal(*served)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("device", ONE_OF_EACH_ARCH, indirect=True)
@pytest.mark.parametrize(
    ("element", "activations"),
    [("int4", "bf16"), ("int4", "fp8"), ("int4", "int8"), ("e2m1", "fp8"), ("e2m1", "bf16"), ("e4m3", "fp8")],
)
def test_experts_of_few_bits(device, element, activations) -> None:
    """Against the same experts with the weights that are stored."""
    layer = nn.GroupedExperts(3, 128, 128, device=device)
    ids, weights = routed(20, 3, device)
    x = random(20, 128, device=device)
    stored = layer.quantized(element=element, activations=activations)
    for part, packed in ((layer.gate_up, stored.gate_up.weights), (layer.down, stored.down.weights)):
        part.weight.data = value_of(packed).float() if isinstance(packed, tuple) else packed.dequantize()
    with torch.no_grad():
        exact = exact_experts(layer, x, ids, weights, swiglu)
        results = [stored(x, ids, weights, masked=masked) for masked in (False, True)]
    assert distance(results[0], exact) < (0.06 if activations == "fp8" else 0.02)
    assert torch.equal(*results)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("activations", "tokens"), [("bf16", 20), ("fp8", 20), ("fp8", 100)])
def test_experts_packed_for_their_gate(activations, tokens, monkeypatch) -> None:
    """The first product applies it, and with many rows an expert quantises for the second one, by the same weights."""
    layer = nn.GroupedExperts(3, 128, 128)
    fused = layer.quantized(activations=activations)
    assert (fused.gate_up.weights.gate_up, fused.down.weights.gate_up) == ("halves", None)
    how = {"element": "int4", "activations": activations, "group_size": 128}
    apart = pack_weights(*quantize_to_int4(layer.gate_up.weight.detach(), 128), **how)
    plain = nn.GroupedExperts.from_weights(apart, fused.down.weights, gate=layer.gate)
    fused.masked_up_to = 200
    written, real = [], gated_product.gemm
    monkeypatch.setattr(gated_product, "gemm", lambda a, b, d, **more: (written.append(d), real(a, b, d, **more)))
    ids, weights = routed(tokens, 3, "cpu")
    x = random(tokens, 128)
    with torch.no_grad():
        assert distance(fused(x, ids, weights), plain(x, ids, weights).double()) < 0.02
    assert [isinstance(d, tuple) for d in written] == [tokens == 100, False]
    fused.as_trained = True
    with pytest.raises(RuntimeError, match="as_trained wants the gate behind the first product"):
        fused(x.detach(), ids, weights)


@pytest.mark.parametrize(("element", "activations"), [("int4", "bf16"), ("e4m3", "fp8")])
def test_stored_weights_survive(element, activations, tmp_path) -> None:
    """Copies, pickles, both kinds of files, and a change of the model's dtype."""
    safetensors = pytest.importorskip("safetensors.torch")
    linear = torch.nn.Linear(256, 128)
    layer = nn.QuantLinear.from_linear(linear, element=element, activations=activations)
    x = random(5, 256)
    want = layer(x)
    other = nn.QuantLinear.from_linear(torch.nn.Linear(256, 128), element="int4", activations="int8")
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    other.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    assert torch.equal(other(x), want)
    safetensors.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    again = nn.QuantLinear.from_linear(torch.nn.Linear(256, 128), element=element, activations=activations)
    before = again.state_dict(keep_vars=True)
    again.load_state_dict(safetensors.load_file(tmp_path / "layer.safetensors"))
    assert all(again.state_dict(keep_vars=True)[name] is before[name] for name in before if name != "metadata")
    for copied in (again, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer).half().float()):
        assert torch.equal(copied(x), want)
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict({})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        layer.load_state_dict({**layer.state_dict(), "other": torch.zeros(1)})


def test_permuted_inputs_are_applied() -> None:
    layer = nn.QuantLinear.from_linear(torch.nn.Linear(128, 64, bias=False))
    order = torch.randperm(128, generator=generator_of(1))
    permuted = nn.QuantLinear(replace(layer.weights, input_permutation=order))
    x = random(6, 128)
    assert torch.equal(permuted(x), layer(x[:, order]))


def test_experts_from_a_checkpoint(tmp_path) -> None:
    """Expert by expert in two shards, with their config; a process's share of them; and a linear layer beside."""
    safetensors = pytest.importorskip("safetensors.torch")
    source = nn.GroupedExperts(4, 128, 128)
    shards: list[dict[str, torch.Tensor]] = [{}, {}]
    for expert in range(4):
        gate, up = source.gate_up.weight[expert].detach().chunk(2)
        for name, weight in (("gate_proj", gate), ("up_proj", up), ("down_proj", source.down.weight[expert].detach())):
            values, scales = quantize_to_int4(weight, 128)
            prefix = f"model.layers.0.mlp.experts.{expert}.{name}."
            shards[expert % 2] |= {f"{prefix}weight": pack_int4(values), f"{prefix}weight_scale_inv": scales}
    for index, shard in enumerate(shards):
        safetensors.save_file(shard, tmp_path / f"model-{index}.safetensors")
    config = {"quant_method": "w4afp8", "group_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    layer = nn.GroupedExperts.from_checkpoint(tmp_path, "model.layers.0.mlp.experts")
    wanted = source.quantized(element="int4", activations="fp8")
    ids, weights = routed(8, 4, "cpu")
    x = random(8, 128)
    with torch.no_grad():
        assert torch.equal(layer(x, ids, weights), wanted(x, ids, weights))
    one = nn.QuantLinear.from_checkpoint(tmp_path, "model.layers.0.mlp.experts.3.down_proj", activations="bf16")
    assert torch.equal(one.weights.dequantize(), wanted.down.weights[3].dequantize())


def test_one_graph_and_recomputation() -> None:
    """torch.compile without a break, forwards and backwards; activation checkpointing."""
    layer = nn.GroupedExperts(3, 128, 128)
    ids, weights = routed(20, 3, "cpu")
    x = random(20, 128).requires_grad_()

    def gradient(forward) -> torch.Tensor:
        return torch.autograd.grad(forward(x, ids, weights).square().sum(), [x, layer.down.weight])[1]

    want = gradient(layer)
    assert torch.equal(gradient(torch.compile(layer, fullgraph=True, backend="aot_eager")), want)
    assert torch.equal(gradient(lambda *given: checkpoint(layer, *given, use_reentrant=False)), want)


def test_autocast_and_other_dtypes() -> None:
    layer = nn.FP8Linear(128, 64)
    x = random(4, 128)
    assert layer(x.half()).dtype == torch.float16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert layer(x[:0]).shape == (0, 64)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("features must be multiples of 16", lambda: nn.FP8Linear(120, 64)),
        ("precision must be", lambda: nn.FP8Linear(128, 64, precision="fp4")),
        (r"x must be \[.., 128\]", lambda: nn.FP8Linear(128, 64)(torch.zeros(2, 64))),
        ("element must be one of", lambda: nn.QuantLinear.from_linear(torch.nn.Linear(128, 64), element="int3")),
        ("weights must be one matrix", lambda: nn.QuantLinear(quantize.fp8_blocks(torch.zeros(2, 128, 128)))),
        ("weights must be for one kind of activations", lambda: nn.GroupedExperts.from_weights(
            nn.GroupedExperts(1, 128, 128).quantized().gate_up.weights, quantize.fp8_blocks(torch.zeros(1, 128, 128)))),
        ("x asks for a gradient", lambda: nn.QuantLinear.from_linear(torch.nn.Linear(128, 64))(
            torch.zeros(2, 128, requires_grad=True))),
        ("weights must be master weights", lambda: nn.GroupedExperts(1, 128, 128).quantized()(
            torch.zeros(2, 128, requires_grad=True), torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1))),
        ("got none", lambda: nn.QuantLinear.from_checkpoint({}, "layer", config={"quant_method": "gptq"})),
        ("quant_method must be one of", lambda: nn.QuantLinear.from_checkpoint(
            {"a.weight": torch.zeros(1)}, "a", config={"quant_method": "magic"})),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused(words, call) -> None:
    with pytest.raises((ValueError, TypeError, RuntimeError, NotImplementedError), match=words):
        call()
