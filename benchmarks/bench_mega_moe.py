"""A whole MoE layer in one call (`fp8_mega_moe`) beside separate products of this library, each in a CUDA graph.

    python benchmarks/bench_mega_moe.py --out results

From BF16 tokens, their experts and weights to BF16 results. The separate forms: gate and quantised output in the
product (`fused`) or in a kernel behind it (`separate`), and experts' rows behind each other with ends (`psum`), with a
number for each row (`indices`), or a matrix for each expert (`masked`). Both products in one launch (`one launch`), by
`persistent=True`. `--cases 64 512`: with those numbers of tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from machine import describe, write_result
from timing import sustained_seconds

import deep_gemm
from deep_gemm import Contiguous, quantize, routing
from deep_gemm.epilogue import Chain, RowScale, SwiGLU

MASKED_UP_TO = 128  # tokens: a matrix for each expert has a row for each of them


@dataclass(frozen=True)
class Case:
    tokens: int
    experts: int = 256
    topk: int = 8
    hidden: int = 7168
    intermediate: int = 2048
    weights: str = "fp8"  # or int4, e2m1 (MXFP4)


TOKENS = (1, 8, 64, 512, 4096, 8192)
CASES = [
    *(Case(tokens) for tokens in TOKENS),
    *(Case(tokens, experts=32) for tokens in TOKENS),
    *(Case(tokens, experts=32, weights=weights) for weights in ("int4", "e2m1") for tokens in (1, 8, 64, 512)),
]


class Layer:
    def __init__(self, case: Case, device: torch.device) -> None:
        self.case = case
        tokens, hidden = case.tokens, case.hidden
        sizes = case.experts, tokens, case.topk, hidden, case.intermediate
        self.buffer, self.persistent = (
            deep_gemm.get_symm_buffer_for_sm90_mega_moe(None, *sizes, device=device, persistent=persistent)
            for persistent in (False, True)
        )
        self.x = torch.randn(tokens, hidden, dtype=torch.bfloat16, device=device)
        scores = torch.randn(tokens, case.experts, device=device).softmax(-1)
        self.factors, ids = scores.topk(min(case.topk, case.experts))
        self.ids = ids.int()
        self.y = torch.empty(tokens, hidden, dtype=torch.bfloat16, device=device)
        shapes = (case.experts, 2 * case.intermediate, hidden), (case.experts, hidden, case.intermediate)
        self.l1, self.l2 = (
            self._weights(shape, device, gate_up) for shape, gate_up in zip(shapes, ("halves", None), strict=True)
        )
        self.plain = None if case.weights == "fp8" else self._weights(shapes[0], device, None)
        self.layer_weights = deep_gemm.transform_weights_for_mega_moe_sm90(self.l1, self.l2)
        for buffer in self.buffer, self.persistent:
            self.dispatch(buffer)

    def _weights(self, shape: tuple[int, ...], device: torch.device, gate_up: str | None) -> Any:
        experts, n, k = shape
        torch.manual_seed(n)
        if self.case.weights == "fp8":
            data = torch.empty(shape, dtype=torch.float8_e4m3fn, device=device)
            for each in data:
                each.copy_(torch.randn(n, k, dtype=torch.bfloat16, device=device))
            return data, torch.full((experts, n // 128, k // 128), 0.02, device=device)
        low, high, group = (-8, 8, 128) if self.case.weights == "int4" else (0, 16, 32)
        codes = torch.randint(low, high, shape, dtype=torch.int8, device=device)
        scales = torch.exp2(torch.randint(-9, -6, (experts, n, k // group), device=device).float())
        more: dict[str, Any] = {"element": self.case.weights, "activations": "fp8", "group_size": group}
        return deep_gemm.pack_weights(codes, scales, gate_up=gate_up, **more)

    def dispatch(self, b: deep_gemm.SM90SymmBuffer) -> None:
        views = b.x, b.x_sf, b.topk_idx, b.topk_weights
        deep_gemm.mega_moe_pre_dispatch_sm90(self.x, self.ids, self.factors, *views, num_tokens=self.case.tokens)

    def call(self, buffer: deep_gemm.SM90SymmBuffer) -> None:
        deep_gemm.fp8_mega_moe(self.y, *self.layer_weights, buffer)

    def whole(self) -> None:
        self.dispatch(self.buffer)
        self.call(self.buffer)

    def separate(self, kind: str, fused: bool) -> None:
        found = routing.route(self.ids, self.case.experts, kind=kind, weights=self.factors)
        grouping: Any = found.grouping()
        if isinstance(grouping, Contiguous) and grouping.psum:
            grouping = Contiguous(found.ends, psum=True, zero_padding=False, expected_m=grouping.expected_m)
        rows = routing.gather(quantize.fp8(self.x), found)
        shape = found.source.shape
        if fused:
            inner: Any = self._room(*shape, self.case.intermediate)
            steps = Chain(SwiGLU(), RowScale(found.row_weights))
            deep_gemm.gemm(rows, self.l1, inner, grouping=grouping, epilogue=steps)
        else:
            both = self.x.new_empty(*shape, 2 * self.case.intermediate)
            deep_gemm.gemm(rows, self.plain or self.l1, both, grouping=grouping)
            inner = quantize.swiglu_fp8(both, row_scale=found.row_weights, grouping=grouping)
        down = self.x.new_empty(*shape, self.case.hidden)
        deep_gemm.gemm(inner, self.l2, down, grouping=grouping)
        self.y = routing.combine(down, found)

    def _room(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        *lead, rows, columns = shape
        padded = deep_gemm.get_tma_aligned_size(rows, 4)
        scales = torch.empty(*lead, columns // 128, padded, device=self.x.device)
        return torch.empty(shape, dtype=torch.float8_e4m3fn, device=self.x.device), scales.mT[..., :rows, :]

    def parts(self) -> dict[str, Callable[[], None]]:
        kinds = ["psum", "indices", *(["masked"] if self.case.tokens <= MASKED_UP_TO else [])]
        named = {"fused": True, "separate": False}
        return {
            "dispatch and call": self.whole,
            "call": lambda: self.call(self.buffer),
            "one launch": lambda: self.call(self.persistent),
            "dispatch": lambda: self.dispatch(self.buffer),
            **{
                f"{name}, {kind}": lambda kind=kind, fused=fused: self.separate(kind, fused)
                for kind in kinds
                for name, fused in named.items()
            },
        }


def measure(cases: Iterable[Case], device: torch.device) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        layer, row = Layer(case, device), asdict(case)
        for name, part in layer.parts().items():
            part()
            row[name] = round(sustained_seconds([part], 0.02) * 1e6, 2)
        print(row, flush=True)
        rows.append(row)
        del layer
        torch.cuda.empty_cache()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory of the result file")
    parser.add_argument("--cases", type=int, nargs="*", help="numbers of tokens; by default all")
    parser.add_argument("--commit", help="of the library, where this is no clone")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: nothing was measured")
        return 1
    cases = [case for case in CASES if not arguments.cases or case.tokens in arguments.cases]
    rows = measure(cases, torch.device("cuda"))
    if arguments.out:
        machine = describe(arguments.commit)
        write_result(arguments.out / "mega_moe.json", {"what": "bench_mega_moe", "machine": machine, "rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
