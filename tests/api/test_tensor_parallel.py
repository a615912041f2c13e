"""Parts of layers along N and K, read from a checkpoint by slices, beside the layers as a whole."""

from __future__ import annotations

import json

import fresh
import pytest
import torch
from checkpoint_layers import LAYERS

from deep_gemm import nn
from deep_gemm.nn.checkpoint import Checkpoint
from deep_gemm.nn.cuts import Cut, cut_layer
from deep_gemm.utils import pack_int4, per_block_cast_to_fp8, quantize_to_int4, quantize_to_mxfp4
from deep_gemm.weights import PackedWeights, weights_from_checkpoint

# Of formats of one matrix, in how many parts N and K may be cut; 64 x 192 in groups of 32, but for what is said.
CUTS = {
    "gptq": (4, 3),
    "gptq-act-order": (4, None),
    "awq": (4, 2),
    "mxfp4": (4, 3),
    "nvfp4": (4, 6),
    "fp8-block": (None, 3),  # 40 x 384 in blocks of 128 x 128
    "pack-quantized": (4, 3),
    "pack-quantized-act-order": (4, None),
    "int-quantized": (4, 6),
}


def packed(layer, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    found = weights_from_checkpoint(layer.format, tensors, activations=layer.activations, config=layer.config)
    values = found.dequantize()
    order = found.input_permutation
    return values if order is None else torch.empty_like(values).index_copy_(1, order, values)


def saved(layer, folder) -> Checkpoint:
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {f"layer.{name}": tensor.contiguous() for name, tensor in layer.tensors.items()}
    safetensors.save_file(tensors, folder / "model.safetensors")
    config = {"quant_method": layer.format, **layer.config}
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return Checkpoint(folder)


@pytest.mark.parametrize("along", ["N", "K"])
@pytest.mark.parametrize("name", CUTS)
def test_parts_are_parts_of_the_whole(name, along, tmp_path) -> None:
    layer, size = LAYERS[name](), CUTS[name][along == "K"]
    checkpoint, (n, k) = saved(layer, tmp_path), layer.values.shape
    how = checkpoint.quantization, n, k
    if size is None:
        with pytest.raises(ValueError, match=r"act order|would cut what 128 of N share|processes divide"):
            cut_layer(checkpoint, "layer", *how, Cut(along, 1, 3 if along == "N" else 2))
        return
    parts = [packed(layer, cut_layer(checkpoint, "layer", *how, Cut(along, rank, size))) for rank in range(size)]
    assert torch.equal(torch.cat(parts, int(along == "K")), layer.values)


def test_a_part_that_would_cut_a_scale_or_a_word_is_refused(tmp_path) -> None:
    layer = LAYERS["gptq"]()
    checkpoint = saved(layer, tmp_path)
    how = checkpoint.quantization, *layer.values.shape
    with pytest.raises(ValueError, match=r"layer.\w+ cannot be cut along K=192 in 4: parts of 48 would cut what 32"):
        cut_layer(checkpoint, "layer", *how, Cut("K", 0, 4))
    with pytest.raises(ValueError, match=r"layer.qzeros cannot be cut along N=64 in 16: parts of 4 would cut what 8"):
        cut_layer(checkpoint, "layer", *how, Cut("N", 0, 16))
    with pytest.raises(ValueError, match="must have K that 5 processes divide, got 192"):
        cut_layer(checkpoint, "layer", *how, Cut("K", 0, 5))
    with pytest.raises(NotImplementedError, match="layers of 'qoq' are not cut"):
        cut_layer(checkpoint, "layer", {"quant_method": "qoq"}, 64, 192, Cut("N", 0, 2))


class Mlp(torch.nn.Module):
    """As transformers has it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = torch.nn.Linear(128, 256, bias=False)
        self.up_proj = torch.nn.Linear(128, 256, bias=False)
        self.down_proj = torch.nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mlp = Mlp()


PLAN = {"*.gate_proj": "columns", "*.up_proj": "colwise", "*.down_proj": "rows"}
X = torch.linspace(-1, 1, 5 * 128).view(5, 128)


def exact_and_checkpoint(folder) -> torch.Tensor:
    """What the MLP of a checkpoint's rounded weights makes of X."""
    safetensors = pytest.importorskip("safetensors.torch")
    source, tensors = Block().mlp, {}
    with torch.no_grad():
        for name in ("gate_proj", "up_proj", "down_proj"):
            weight = source.get_submodule(name).weight
            values, scales = quantize_to_int4(weight, 128)
            tensors |= {f"mlp.{name}.weight": pack_int4(values), f"mlp.{name}.weight_scale_inv": scales}
            weight.copy_(values * scales.repeat_interleave(128, 1))
        tensors["mlp.down_proj.bias"] = source.down_proj.bias.clone()
        safetensors.save_file(tensors, folder / "model.safetensors")
        config = {"quantization_config": {"quant_method": "w4afp8", "group_size": 128}}
        (folder / "config.json").write_text(json.dumps(config))
        return source(X)


def converted(folder, **config) -> torch.nn.Module:
    model = Block()
    nn.convert(model, folder, {"activations": "bf16", **config})
    return model.mlp


def test_an_mlp_becomes_one_layer_whole_and_in_parts(tmp_path) -> None:
    exact = exact_and_checkpoint(tmp_path)
    whole = converted(tmp_path)
    assert isinstance(whole, nn.GatedMLP)
    assert whole.gate_up.weights.gate_up == "halves"
    parts = [converted(tmp_path, tensor_parallel=(rank, 2), plan=PLAN) for rank in range(2)]
    assert [(part.inner, part.down_bias is None) for part in parts] == [(128, False), (128, True)]
    with torch.no_grad():
        for found in (whole(X), sum(part(X) for part in parts)):
            assert (found - exact).norm() < 0.01 * exact.norm()
    own = Block()  # of parameters
    nn.convert(own, config={"element": "int4", "tensor_parallel": (1, 2), "plan": PLAN})
    for ours, read in ((own.mlp.gate_up, parts[1].gate_up), (own.mlp.down, parts[1].down)):
        assert torch.equal(ours.weights.dequantize(), read.weights.dequantize())


class Experts(torch.nn.Module):
    """As transformers has them; with biases and interleaved as gpt-oss does."""

    def __init__(self, layout: str = "halves") -> None:
        super().__init__()
        self.layout = layout
        drawn = torch.Generator().manual_seed(1)
        shapes = {"gate_up_proj": (2, 512, 128), "down_proj": (2, 128, 256)}
        if layout == "interleaved":
            shapes |= {"gate_up_proj_bias": (2, 512), "down_proj_bias": (2, 128)}
        for name, shape in shapes.items():
            setattr(self, name, torch.nn.Parameter(torch.randn(shape, generator=drawn) / 12))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        both = torch.einsum("th,tsnh->tsn", x, self.gate_up_proj[ids])
        if self.layout == "interleaved":
            both = both + self.gate_up_proj_bias[ids]
        gate, up = both.chunk(2, -1) if self.layout == "halves" else (both[..., ::2], both[..., 1::2])
        each = torch.einsum("tsi,tshi->tsh", torch.nn.functional.silu(gate) * up, self.down_proj[ids])
        if self.layout == "interleaved":
            each = each + self.down_proj_bias[ids]
        return (each * weights.unsqueeze(-1)).sum(1)


def with_experts(layout: str = "halves", source=None, **config) -> nn.GroupedExperts:
    model = torch.nn.ModuleDict({"experts": Experts(layout)})
    nn.convert(model, source, config)
    return model["experts"]


def in_torch(experts: nn.GroupedExperts) -> torch.Tensor:
    """What the same weights make of X, without products of ours."""
    exact = Experts(experts.gate.layout)
    exact.gate_up_proj.data = experts.gate_up.weights.dequantize()
    exact.down_proj.data = experts.down.weights.dequantize()
    return exact(X[:3], IDS, ROUTER)


IDS, ROUTER = torch.tensor([[0, 1], [1, 0], [1, 0]]), torch.tensor([[0.25, 1.0], [0.5, 0.125], [1.0, 2.0]])
OF_EXPERTS = {"experts": "experts"}


def experts_in_a_checkpoint(form: str, folder) -> dict[str, str]:
    """Each expert's matrices in int4 or FP8 blocks; or all in one tensor, MXFP4. What config says of a layout."""
    source, tensors = Experts("interleaved" if form == "mxfp4" else "halves"), {}
    if form == "mxfp4":
        for name in ("gate_up_proj", "down_proj"):
            codes, exponents = quantize_to_mxfp4(getattr(source, name).detach())
            blocks = (codes[..., ::2] | codes[..., 1::2] << 4).unflatten(-1, (-1, 16))
            tensors |= {f"experts.{name}_blocks": blocks, f"experts.{name}_scales": exponents}
            tensors[f"experts.{name}_bias"] = getattr(source, f"{name}_bias").detach()
        config = {"quant_method": "mxfp4"}
    else:
        for expert in range(2):
            gate, up = source.gate_up_proj[expert].detach().chunk(2)
            for name, weight in (("gate", gate), ("up", up), ("down", source.down_proj[expert].detach())):
                if form == "fp8":
                    values, scales = per_block_cast_to_fp8(weight, use_ue8m0=False)
                else:
                    values, scales = quantize_to_int4(weight, 128)
                    values = pack_int4(values)
                key = f"experts.{expert}.{name}_proj.weight"
                tensors |= {key: values.contiguous(), f"{key}_scale_inv": scales.contiguous()}
        config = {"quant_method": form, "weight_block_size": [128, 128], "group_size": 128}
    pytest.importorskip("safetensors.torch").save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return {"layout": source.layout, "activations": "fp8" if form == "fp8" else "bf16"}


def values_of(experts: nn.GroupedExperts) -> list[torch.Tensor]:
    """Of gates, ups and down."""
    found = [experts.gate_up.weights, experts.down.weights]
    gate_up, down = (
        each.dequantize()
        if isinstance(each, PackedWeights)
        else each[0].float() * each[1].repeat_interleave(128, 1).repeat_interleave(128, 2)
        for each in found
    )
    sides = gate_up.chunk(2, 1) if experts.gate.layout == "halves" else (gate_up[:, ::2], gate_up[:, 1::2])
    return [*sides, down.mT]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", ["w4afp8", "fp8", "mxfp4", "parameters", "parameters with biases"])
def test_parts_of_experts_are_parts_of_the_whole(form, tmp_path) -> None:
    if form.startswith("parameters"):
        source = {"element": "int4", "layout": "interleaved" if "biases" in form else "halves"}
    else:
        source = {"source": tmp_path, **experts_in_a_checkpoint(form, tmp_path)}
    whole = with_experts(**source)
    parts = [with_experts(**source, tensor_parallel=(rank, 2), plan=OF_EXPERTS) for rank in range(2)]
    assert [(part.inner, part.num_experts, part.tensor_group) for part in parts] == [(128, 2, None)] * 2
    for found, wanted in zip(zip(*map(values_of, parts), strict=True), values_of(whole), strict=True):
        assert torch.equal(torch.cat(found, 1), wanted)
    biases = [(part.gate_up_bias is None, part.down_bias is None) for part in parts]
    assert biases == ([(False, False), (False, True)] if source["layout"] == "interleaved" else [(True, True)] * 2)
    if form == "parameters with biases":  # others: by two processes, below
        with torch.no_grad():
            exact = in_torch(whole)
            assert (sum(part(X[:3], IDS, ROUTER) for part in parts) - exact).norm() < 0.01 * exact.norm()


def test_parts_of_experts_that_would_cut_a_scale_are_refused(tmp_path) -> None:
    experts_in_a_checkpoint("fp8", tmp_path)
    for config, message in (
        ({"source": tmp_path}, r"experts.0.gate_proj.weight_scale_inv cannot be cut along N=256 in 4: parts of 64"),
        ({"element": "int4"}, r"experts.down_proj cannot be cut along K=256 in 4: parts of 64 would cut what 128"),
    ):
        with pytest.raises(ValueError, match=message):
            with_experts(**config, tensor_parallel=(0, 4), plan=OF_EXPERTS)
    with pytest.raises(ValueError, match=r"experts.gate_up_proj must have N that 3 processes divide, got 256"):
        with_experts(element="int4", tensor_parallel=(0, 3), plan=OF_EXPERTS)
    with pytest.raises(ValueError, match="must have 'experts' for the experts experts, got 'rows'"):
        with_experts(element="int4", tensor_parallel=(0, 2), plan={"*": "rows"})
    with pytest.raises(ValueError, match=r"must have 'columns' or 'rows' for the linear layer mlp.gate_proj"):
        nn.convert(Block(), config={"element": "int4", "tensor_parallel": (0, 2), "plan": {"*": "experts"}})
    with pytest.raises(ValueError, match="cut must have the checkpoint's hidden and inner, got 128 and 512"):
        nn.GroupedExperts.from_checkpoint(tmp_path, "experts", cut=nn.ExpertCut(0, 2, 128, 512))
    with pytest.raises(ValueError, match="rank must be below the size of 2"):
        nn.ExpertCut(2, 2, 128, 256)


RANK = """
from test_tensor_parallel import IDS, OF_EXPERTS, PLAN, ROUTER, X, converted, with_experts
torch.distributed.init_process_group("gloo", init_method="file://{store}", rank={rank}, world_size=2)
group = torch.distributed.group.WORLD
mlp = converted("{folder}", tensor_parallel=group, plan=PLAN, mlps=False)
experts = with_experts(element="int4", tensor_parallel=group, plan=OF_EXPERTS)
with torch.no_grad():
    result = [type(mlp.down_proj).__name__, mlp(X).tolist(), experts(X[:3], IDS, ROUTER).tolist()]
torch.distributed.destroy_process_group()
"""


def test_two_processes_give_what_one_gives(tmp_path) -> None:
    exact = exact_and_checkpoint(tmp_path)
    code = [RANK.format(store=tmp_path / "store", rank=rank, folder=tmp_path) for rank in range(2)]
    outcomes = [running.wait() for running in [fresh.start(each) for each in code]]
    assert [outcome.status for outcome in outcomes] == [0, 0], [outcome.stderr for outcome in outcomes]
    kinds, found, of_experts = zip(*(outcome.result for outcome in outcomes), strict=True)
    assert kinds == ("ReducedLinear", "ReducedLinear")
    assert found[0] == found[1]
    assert (torch.tensor(found[0]) - exact).norm() < 0.01 * exact.norm()
    with torch.no_grad():
        exact = in_torch(with_experts(element="int4"))
    assert of_experts[0] == of_experts[1]
    assert (torch.tensor(of_experts[0]) - exact).norm() < 0.01 * exact.norm()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tensor_parallel": (0, 2)}, "wants a 'plan'"),
        ({"plan": {}}, "goes with 'tensor_parallel'"),
        (
            {"tensor_parallel": (0, 2), "plan": {"*": "colwise_rep"}},
            "must have 'columns' or .* 'experts' .* got 'colwise_rep'",
        ),
        ({"tensor_parallel": (2, 2), "plan": PLAN}, "a rank below the size"),
        ({"tensor_parallel": (0, 2), "plan": PLAN}, "is for inference only"),
        ({"tensor_parallel": (0, 4), "plan": PLAN, "element": "int4"}, r"down_proj.weight cannot be cut along K=256"),
        ({"tensor_parallel": (0, 3), "plan": PLAN, "element": "int4"}, "gate_proj.weight must have N that 3"),
    ],
)
def test_what_cannot_be_cut_is_refused(config, message) -> None:
    with pytest.raises(ValueError, match=message):
        nn.convert(Block(), config=config)


def test_packed_weights_of_a_checkpoint_for_their_gate() -> None:
    layer = LAYERS["gptq"]()
    how = {"activations": "bf16", "config": layer.config}
    found = weights_from_checkpoint(layer.format, layer.tensors, gate_up="halves", **how)
    assert isinstance(found, PackedWeights)
    assert found.gate_up == "halves"
    assert torch.equal(found.dequantize(), layer.values)
    with pytest.raises(ValueError, match="gate_up must be None, 'halves' or 'interleaved', got 'both'"):
        weights_from_checkpoint(layer.format, layer.tensors, gate_up="both", **how)
