"""A mixture-of-experts layer with weights of four bits, from checkpoints in their public forms.

    python -m examples.moe_w4a8

Makes a layer, writes it as three kinds of checkpoints that people have (safetensors files where that package is there),
reads and packs them, and runs each: a decode step with masked experts, and a prefill whose experts' rows follow each
other. Prints how far each is from the layer in BF16, most of which four bits make, and how far from a layer in FP32
that has the same four-bit weights. Without a GPU it runs on the simulator.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import deep_gemm
from deep_gemm.utils import (
    align,
    pack_int4,
    per_token_cast_to_fp8,
    per_token_cast_to_int8,
    quantize_to_int4,
    quantize_to_mxfp4,
)

Tensors = dict[str, torch.Tensor]
Scaled = tuple[torch.Tensor, torch.Tensor]
LAYER = "model.layers.0.mlp.experts."
GATE_UP, DOWN = PROJECTIONS = ("gate_up_proj", "down_proj")


def w4afp8(name: str, weights: torch.Tensor) -> Tensors:
    """int4 in groups of 128 along K, expert by expert, two values a byte."""
    values, scales = quantize_to_int4(weights, 128)
    experts = range(weights.shape[0])
    return {f"{LAYER}{e}.{name}.weight": pack_int4(values[e]) for e in experts} | {
        f"{LAYER}{e}.{name}.weight_scale_inv": scales[e].clone() for e in experts
    }


def compressed_tensors(name: str, weights: torch.Tensor) -> Tensors:
    """int4 with a scale for each channel, expert by expert, a value a byte ('int-quantized')."""
    values, scales = quantize_to_int4(weights, None)
    experts = range(weights.shape[0])
    return {f"{LAYER}{e}.{name}.weight": values[e].clone() for e in experts} | {
        f"{LAYER}{e}.{name}.weight_scale": scales[e].unsqueeze(1) for e in experts
    }


def mxfp4(name: str, weights: torch.Tensor) -> Tensors:
    """FP4 in groups of 32 along K, all experts in a tensor, two values a byte."""
    codes, exponents = quantize_to_mxfp4(weights)
    pairs = (codes[..., 0::2] | codes[..., 1::2] << 4).view(*exponents.shape, 16)
    return {f"{LAYER}{name}_blocks": pairs, f"{LAYER}{name}_scales": exponents}


def write(file: Path, tensors: Tensors) -> None:
    try:
        from safetensors.torch import save_file
    except ImportError:
        torch.save(tensors, file)
    else:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)


def read(file: Path) -> Tensors:
    try:
        from safetensors.torch import load_file
    except ImportError:
        return dict(torch.load(file, weights_only=True))
    return load_file(file)


def of_each_expert(tensors: Tensors, name: str, experts: int) -> Mapping[str, list[torch.Tensor]]:
    """Tensors of a projection under the names that one matrix has, as lists of experts."""
    prefix = f"{LAYER}0.{name}."
    parts = [key.removeprefix(prefix) for key in tensors if key.startswith(prefix)]
    return {part: [tensors[f"{LAYER}{e}.{name}.{part}"] for e in range(experts)] for part in parts}


def fp8_rows(x: torch.Tensor) -> Scaled:
    """With a scale for each token."""
    flat = x.reshape(-1, x.shape[-1])
    data, scales = per_token_cast_to_fp8(flat, use_ue8m0=False, gran_k=flat.shape[1])
    return data.view(x.shape), scales.view(x.shape[:-1])


def int8_rows(x: torch.Tensor) -> Scaled:
    data, scales = per_token_cast_to_int8(x)
    return data, scales


@dataclass(frozen=True)
class Format:
    """A kind of checkpoint, and what multiplies it."""

    checkpoint: str
    make: Callable[[str, torch.Tensor], Tensors]
    product: str  # of the function's name
    activations: str
    config: Mapping[str, int]

    def load(self, tensors: Tensors, name: str, experts: int) -> deep_gemm.PackedWeights:
        options: dict[str, Any] = {"activations": self.activations, "config": self.config}
        if self.checkpoint == "mxfp4":
            return deep_gemm.weights_from_checkpoint("mxfp4", tensors, prefix=f"{LAYER}{name}_", **options)
        return deep_gemm.weights_from_checkpoint(self.checkpoint, of_each_expert(tensors, name, experts), **options)

    def function(self, layout: str) -> Callable[..., None]:
        function: Callable[..., None] = getattr(deep_gemm, f"m_grouped_{self.product}_gemm_nt_{layout}")
        return function

    def quantise(self, x: torch.Tensor) -> Scaled:
        return int8_rows(x) if self.activations == "int8" else fp8_rows(x)


FORMATS = [
    Format("w4afp8", w4afp8, "fp8_int4", "fp8", {"group_size": 128}),
    Format("compressed-tensors", compressed_tensors, "int8_int4", "int8", {"num_bits": 4}),
    Format("mxfp4", mxfp4, "fp8_fp4", "fp8", {}),
]


def gated(both: torch.Tensor) -> torch.Tensor:
    gate, up = both.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).bfloat16()


class Experts:
    """Gate and up, and down, of all experts, in one of the formats."""

    def __init__(self, form: Format, gate_up: deep_gemm.PackedWeights, down: deep_gemm.PackedWeights) -> None:
        self.form, self.gate_up, self.down = form, gate_up, down

    def decode(self, rows: torch.Tensor, counts: torch.Tensor, expected_m: int) -> torch.Tensor:
        """rows [experts, max_m, hidden], of each expert as many as `counts` says. Reads nothing on the host."""

        def multiply(x: torch.Tensor, w: deep_gemm.PackedWeights) -> torch.Tensor:
            d = x.new_empty((*x.shape[:2], w.shape[1]))
            self.form.function("masked")(self.form.quantise(x), w, d, counts, expected_m)
            return d

        return multiply(gated(multiply(rows, self.gate_up)), self.down)

    def prefill(self, rows: torch.Tensor, owners: torch.Tensor) -> torch.Tensor:
        """rows [M, hidden]; owners [M], the expert of each row, -1 on padding."""

        def multiply(x: torch.Tensor, w: deep_gemm.PackedWeights) -> torch.Tensor:
            d = x.new_empty((x.shape[0], w.shape[1]))
            self.form.function("contiguous")(self.form.quantise(x), w, d, owners)
            return d

        return multiply(gated(multiply(rows, self.gate_up)), self.down)


def exact(rows: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """[experts, rows, hidden] in FP32, with BF16 between the products."""
    both = rows.float() @ gate_up.float().mT
    return gated(both.bfloat16()).float() @ down.float().mT


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def place_contiguously(rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of all experts one after the other, each at a multiple of the alignment; their owners; where they lie."""
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + align(count, alignment))
    flat = rows.new_zeros((starts[-1], rows.shape[-1]))
    owners = torch.full((starts[-1],), -1, dtype=torch.int32, device=rows.device)
    for expert, (start, count) in enumerate(zip(starts, counts, strict=False)):
        flat[start : start + count] = rows[expert, :count]
        owners[start : start + count] = expert
    return flat, owners, owners >= 0


def main() -> None:
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    if deep_gemm.get_target(device).startswith("sm_10"):
        print("weights of four bits are not multiplied on B200 and B300, as yet")
        return
    hidden, inner, experts, most = (2048, 1024, 32, 64) if gpu else (256, 128, 2, 8)
    generator = torch.Generator().manual_seed(0)
    shapes = {GATE_UP: (experts, 2 * inner, hidden), DOWN: (experts, hidden, inner)}
    weights = {
        name: (torch.randn(shape, generator=generator) / shape[-1] ** 0.5).bfloat16() for name, shape in shapes.items()
    }
    on_device = [weights[name].to(device) for name in PROJECTIONS]
    counts = torch.randint(1, most + 1, (experts,), generator=generator).tolist()
    masked_m = torch.tensor(counts, dtype=torch.int32, device=device)
    rows = torch.randn((experts, most, hidden), generator=generator).bfloat16().to(device)
    real = torch.arange(most, device=device) < masked_m[:, None]
    in_bf16 = exact(rows, *on_device)[real]
    flat, owners, is_real = place_contiguously(rows, counts)

    print(f"{experts} experts of {hidden} x {inner}, {sum(counts)} rows, on {device}")
    print(
        f"{'checkpoint':20s}{'product':12s}{'MB':>7s}"
        f"{'decode to BF16':>17s}{'prefill to BF16':>17s}{'to its weights':>16s}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for form in FORMATS:
            file = Path(folder) / f"{form.checkpoint}.safetensors"
            write(file, {key: t for name in PROJECTIONS for key, t in form.make(name, weights[name]).items()})
            tensors = read(file)
            packed = [form.load(tensors, name, experts).to(device) for name in PROJECTIONS]
            layer = Experts(form, *packed)
            decoded = layer.decode(rows, masked_m, expected_m=max(1, sum(counts) // experts))[real]
            prefilled = layer.prefill(flat, owners)[is_real]
            own = relative(decoded, exact(rows, *(w.dequantize() for w in packed))[real])
            errors = relative(decoded, in_bf16), relative(prefilled, in_bf16)
            megabytes = sum(w.nbytes for w in packed) / 1e6
            print(
                f"{form.checkpoint:20s}{form.product:12s}{megabytes:7.2f}{errors[0]:17.3f}{errors[1]:17.3f}{own:16.3f}"
            )
            if not (own < 0.06 and max(errors) < 0.35 and abs(errors[0] - errors[1]) < 0.01):
                raise SystemExit(f"{form.checkpoint}: more than quantisation explains")
    print(f"{'BF16':32s}{sum(w.nbytes for w in on_device) / 1e6:7.2f}")


if __name__ == "__main__":
    main()
