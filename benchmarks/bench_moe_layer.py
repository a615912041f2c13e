"""A whole MoE layer, or a dense MLP, from BF16 tokens to BF16 results in one CUDA graph: quantise, gate and up, SwiGLU,
quantise, down. The activation as a kernel of its own, behind the product's BF16 output, or as steps of its epilogue.

    python benchmarks/bench_moe_layer.py --out results [--against-deepgemm FOLDER]

`peer` is another package of the name deep_gemm (other_deep_gemm.py) between Triton's quantise kernels, with FP8 weights
also where ours are packed; `triton` is our products between them. Two sets of weights take turns, so that few of them
are found in the L2.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import other_deep_gemm
import torch
import triton_quantize
from machine import describe, write_result
from timing import sustained_seconds

import deep_gemm
from deep_gemm import Contiguous, Masked, quantize
from deep_gemm.epilogue import SwiGLU
from deep_gemm.utils import per_block_cast_to_fp8

ROOM = 256  # rows of a masked expert
SETS = 2


@dataclass(frozen=True)
class Case:
    kind: str  # masked, contiguous or dense
    experts: int
    tokens: int  # of an expert
    hidden: int = 7168
    intermediate: int = 2048
    weights: str = "fp8"  # or int4, e2m1 (MXFP4)


CASES = [
    *(Case("masked", 32, tokens) for tokens in (4, 20, 64)),
    *(Case("masked", 32, tokens, weights=weights) for weights in ("int4", "e2m1") for tokens in (4, 20, 64)),
    *(Case("masked", 32, tokens, 4096, 1536) for tokens in (4, 64)),
    *(Case("contiguous", *size) for size in ((8, 512), (8, 4096), (32, 128))),
    *(Case("dense", 1, tokens) for tokens in (16, 128, 512, 4096)),
]


class Layer:
    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        masked, dense = case.kind == "masked", case.kind == "dense"
        rows = (case.experts, ROOM) if masked else (case.experts * case.tokens,)
        if masked:
            counts = torch.full((case.experts,), case.tokens, dtype=torch.int32, device=device)
            self.grouping: Any = Masked(counts, case.tokens)
        elif not dense:
            experts = torch.arange(case.experts, dtype=torch.int32, device=device)
            self.grouping = Contiguous(experts.repeat_interleave(case.tokens))
        else:
            self.grouping = None
        bf16 = {"dtype": torch.bfloat16, "device": device}
        self.tokens, self.out = torch.randn(*rows, case.hidden, **bf16), torch.empty(*rows, case.hidden, **bf16)
        self.both = torch.empty(*rows, 2 * case.intermediate, **bf16)
        self.one = torch.empty(*rows, case.intermediate, **bf16)
        self.quantised = quantize.fp8(self.tokens, grouping=self.grouping)
        self.hidden = quantize.fp8(self.one.zero_(), grouping=self.grouping)
        lead = () if dense else (case.experts,)
        wide, down = (*lead, 2 * case.intermediate, case.hidden), (*lead, case.hidden, case.intermediate)
        self.wide = [self._weights(wide) for _ in range(SETS)]
        is_packed = case.weights != "fp8"
        self.gated = [self._weights(wide, "halves") for _ in range(SETS)] if is_packed else self.wide
        self.down = [self._weights(down) for _ in range(SETS)]

    def _weights(self, shape: tuple[int, ...], gate_up: str | None = None) -> Any:
        if self.case.weights == "fp8":
            values = torch.randn(shape, dtype=torch.bfloat16, device=self.device) / 50
            if len(shape) == 2:
                return per_block_cast_to_fp8(values, False)
            experts = [per_block_cast_to_fp8(x, False) for x in values]
            return tuple(torch.stack(part) for part in zip(*experts, strict=True))
        low, high, group = (-8, 8, 128) if self.case.weights == "int4" else (0, 16, 32)
        codes = torch.randint(low, high, shape, dtype=torch.int8, device=self.device)
        scales = torch.exp2(torch.randint(-9, -6, (*shape[:-1], shape[-1] // group), device=self.device).float())
        more: dict[str, Any] = {"element": self.case.weights, "activations": "fp8", "group_size": group}
        return deep_gemm.pack_weights(codes, scales, gate_up=gate_up, **more)

    def product(self, a: Any, b: Any, d: Any, epilogue: Any = None) -> None:
        deep_gemm.gemm(a, b, d, grouping=self.grouping, epilogue=epilogue)

    def separate(self, i: int) -> None:
        quantize.fp8(self.tokens, out=self.quantised, grouping=self.grouping)
        self.product(self.quantised, self.wide[i], self.both)
        quantize.swiglu_fp8(self.both, out=self.hidden, grouping=self.grouping)
        self.product(self.hidden, self.down[i], self.out)

    def gated_products(self, i: int) -> None:
        quantize.fp8(self.tokens, out=self.quantised, grouping=self.grouping)
        self.product(self.quantised, self.gated[i], self.one, SwiGLU())
        quantize.fp8(self.one, out=self.hidden, grouping=self.grouping)
        self.product(self.hidden, self.down[i], self.out)

    def fused(self, i: int) -> None:
        quantize.fp8(self.tokens, out=self.quantised, grouping=self.grouping)
        self.product(self.quantised, self.gated[i], self.hidden, SwiGLU())
        self.product(self.hidden, self.down[i], self.out)

    def between_tritons(self, product: Callable[[Any, Any, Any], None], i: int) -> None:
        counts = self.grouping.counts if self.case.kind == "masked" else None
        triton_quantize.cast(self.tokens, *self.quantised, counts)
        product(self.quantised, self.wide[i], self.both)
        triton_quantize.swiglu(self.both, *self.hidden, counts)
        product(self.hidden, self.down[i], self.out)

    def product_of(self, package: Any) -> Callable[[Any, Any, Any], None]:
        """The public functions' forms, which every package of the name has."""
        grouping = self.grouping
        if grouping is None:
            return package.fp8_gemm_nt  # type: ignore[no-any-return]
        if isinstance(grouping, Masked):
            masked = package.m_grouped_fp8_gemm_nt_masked
            return lambda a, b, d: masked(a, b, d, grouping.counts, self.case.tokens)
        contiguous = package.m_grouped_fp8_gemm_nt_contiguous
        return lambda a, b, d: contiguous(a, b, d, grouping.layout)

    def parts(self) -> dict[str, Callable[[int], None]]:
        return {
            "separate": self.separate,
            "gated": self.gated_products,
            "fused": self.fused,
            "quantise": lambda _: _ignore(quantize.fp8(self.tokens, out=self.quantised, grouping=self.grouping)),
            "gate-up": lambda i: self.product(self.quantised, self.wide[i], self.both),
            "swiglu": lambda _: _ignore(quantize.swiglu_fp8(self.both, out=self.hidden, grouping=self.grouping)),
            "down": lambda i: self.product(self.hidden, self.down[i], self.out),
        }


def _ignore(_: object) -> None:
    pass


def microseconds(part: Callable[[int], None]) -> float:
    calls = [lambda i=i: part(i) for i in range(SETS)]
    for call in calls:
        call()
    return round(sustained_seconds(calls, 0.02) * 1e6, 2)


def measure(cases: Iterable[Case], device: torch.device, peer: Any = None) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        layer, row = Layer(case, device), asdict(case)
        for name, part in layer.parts().items():
            row[name] = microseconds(part)
        if triton_quantize.works(device):
            fp8 = layer if case.weights == "fp8" else Layer(replace(case, weights="fp8"), device)
            for name, package in ("triton", deep_gemm), ("peer", peer):
                if package is not None:
                    product = fp8.product_of(package)
                    row[name] = microseconds(lambda i, product=product, fp8=fp8: fp8.between_tritons(product, i))
            del fp8
        print(row, flush=True)
        rows.append(row)
        del layer
        torch.cuda.empty_cache()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory of the result file")
    parser.add_argument("--commit", help="of the library, where this is no clone")
    parser.add_argument("--against-deepgemm", type=Path, metavar="FOLDER", help="where another package was unpacked")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured")
        return 1
    peer = other_deep_gemm.load(arguments.against_deepgemm) if arguments.against_deepgemm else None
    rows = measure(CASES, torch.device("cuda"), peer)
    if arguments.out:
        machine = describe(arguments.commit)
        write_result(arguments.out / "moe_layer.json", {"what": "bench_moe_layer", "machine": machine, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
