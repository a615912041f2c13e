"""Public calls by the names of what they have, recorded for a GPU that is not there: which kernel they get, and why.

Fields are integers, flags 0 or 1; what is not named is as in an FP8 product of BF16. Of sizes: m (of masked experts the
rows of each), n, k (of K groups the sum), groups, alignment, expected_m, num_sms. Of operands: bf16, fp16, s8, fp4
(both), fp4_a, and weights by their element (s4, s4m, s4b, u4, s8b, u8, e2m1, e2m1x, e2m1r, e4m3p); mn_major_a and
mn_major_b, int4_a, asymmetric_a. Of scales: gran_k_a and gran_k_b, per_row_b, packs_scales_a and packs_scales_b (FP32
on SM100, E8M0 elsewhere), fp32_scales, exponent_scales (they are bytes where FP32 ones are no exponents), token_scales,
channel_scales, conversion_scales, zeros_k. Of D: bf16_output and the like, quantised, quantised_words, quantised_int8;
add_c, in_place, bias, fp32_bias, alpha, row_scale, random_rounding, gate, gate_rows, head_left, head_skipped,
head_right. Of K groups group_maps: each has maps of its own. And compiled_dims (bits 1, 2, 4: M, N, K),
batch_invariant, fast_accumulation (of weights with one scale a row), and a config: tile_rows, tile_cols, swap_ab,
cluster_rows, cluster_cols, cluster_k, k_warpgroups, preconvert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from packed_orders import PACKED

import deep_gemm
from deep_gemm import epilogue
from deep_gemm._extension import C
from deep_gemm._gates import KINDS, ROWS
from deep_gemm._recording import placeholder, record
from deep_gemm._targets import BLACKWELL_TARGETS, HOPPER_TARGET
from deep_gemm.layout import get_tma_aligned_size
from deep_gemm.utils.math import ceil_div
from deep_gemm.weights.blank import blank_weights
from deep_gemm.weights.packings import FOLDED, TWO_LEVELS

Fields = Mapping[str, int]
CONFIG = ("tile_rows", "tile_cols", "swap_ab", "cluster_rows", "cluster_cols", "cluster_k")
CONFIG += ("k_warpgroups", "preconvert")
OUTPUTS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "s32": torch.int32}
PLAIN = {"bf16": torch.bfloat16, "fp16": torch.float16, "s8": torch.int8, "e4m3": torch.float8_e4m3fn}
CODES = getattr(torch, "float4_e2m1fn_x2", torch.int8)  # so that FP32 scales do not make integers of them
KNOWN = {*CONFIG, *PLAIN, *PACKED, *(f"{name}_output" for name in OUTPUTS), "e2m1r", "fp4", "fp4_a"}
KNOWN |= set(
    [
        "m",
        "n",
        "k",
        "groups",
        "alignment",
        "expected_m",
        "num_sms",
        "mn_major_a",
        "mn_major_b",
        "int4_a",
        "asymmetric_a",
        "gran_k_a",
        "gran_k_b",
        "per_row_b",
        "packs_scales_a",
        "packs_scales_b",
        "fp32_scales",
        "exponent_scales",
        "token_scales",
        "channel_scales",
        "conversion_scales",
        "zeros_k",
        "add_c",
        "quantised",
        "quantised_words",
        "quantised_int8",
        "in_place",
        "bias",
        "fp32_bias",
        "alpha",
        "row_scale",
        "random_rounding",
        "gate",
        "gate_rows",
        "head_left",
        "head_skipped",
        "head_right",
        "group_maps",
        "compiled_dims",
        "batch_invariant",
        "fast_accumulation",
    ]
)
WOULD_SPILL = "it would spill registers: "
BATCHED = {0: "bhr,hdr->bhd", 1: "bhd,hdr->bhr"}  # by whether B lies MN-major
GRADIENT = "bhd,bhr->hdr"
M, N, K = 1, 2, 4


def kernel_of(grouping: str, fields: Fields, target: str = HOPPER_TARGET, gpu: str | None = None) -> Mapping[str, Any]:
    """The call's kernel, as `C.recorded_kernel` describes it."""
    config = {name: fields[name] for name in CONFIG if name in fields}
    with recorded(grouping, fields, target, gpu):
        return dict(C.recorded_kernel(config))


def spilling_kernel_of(grouping: str, fields: Fields, target: str = HOPPER_TARGET) -> tuple[str, str]:
    """The family for which the call's named config is refused (csrc/config/ARCH/spills.hpp; empty: it is not), and the
    text of its kernel all the same."""
    config = {name: fields[name] for name in CONFIG if name in fields}
    with recorded(grouping, fields, target):
        text = str(C.recorded_spilling_kernel(config)["text"])
        try:
            C.recorded_kernel(config)
        except ValueError as error:
            return str(error).partition(WOULD_SPILL)[2], text
        return "", text


def explain(grouping: str, fields: Fields, target: str = HOPPER_TARGET, gpu: str | None = None) -> str:
    """Every candidate for the call, cheapest first, refused ones last, one a line."""
    with recorded(grouping, fields, target, gpu):
        return str(C.explain_recorded())


@contextmanager
def recorded(grouping: str, fields: Fields, target: str, gpu: str | None = None) -> Iterator[None]:
    """The call was made, and is this thread's latest one."""
    alignment = deep_gemm.get_mk_alignment_for_contiguous_layout()
    invariant, fast = deep_gemm.get_batch_invariant("cpu"), deep_gemm.get_fast_accumulation("cpu")
    try:
        deep_gemm.set_mk_alignment_for_contiguous_layout(fields.get("alignment", 128))
        deep_gemm.set_batch_invariant(bool(fields.get("batch_invariant")), "cpu")
        deep_gemm.set_fast_accumulation(bool(fields.get("fast_accumulation")), "cpu")
        with record(target, fields.get("num_sms"), gpu):
            FieldCall(grouping, dict(fields), target).make()
            yield
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
        deep_gemm.set_batch_invariant(invariant, "cpu")
        deep_gemm.set_fast_accumulation(fast, "cpu")


class FieldCall:
    def __init__(self, grouping: str, fields: dict[str, int], target: str) -> None:
        self.grouping, self.target = grouping, target
        self.blackwell = target in BLACKWELL_TARGETS
        self.fields = fields
        assert fields.keys() <= KNOWN, f"no call has a field {', '.join(sorted(fields.keys() - KNOWN))}"
        self.m, self.n, self.k = (self.get(name) for name in "mnk")
        self.groups = self.get("groups", 1)
        self.a, self.b = self._elements()
        self.each_a = (self.groups,) if grouping in ("masked", "batched", "batch_sum") else ()
        self.each_b = () if grouping in ("dense", "k_contiguous") else (self.groups,)
        self.how: dict[str, Any] = {}

    def get(self, name: str, default: int = 0) -> int:
        return self.fields.get(name, default)

    def _elements(self) -> tuple[str, str]:
        if self.get("fp4"):
            return "e2m1r", "e2m1r"
        if self.get("fp4_a"):
            return "e2m1r", "e4m3"
        a = next((name for name in ("bf16", "fp16", "s8") if self.get(name)), "e4m3")
        return a, next((name for name in (*PACKED, "e2m1r") if self.get(name)), a)

    def make(self) -> None:
        output = next((dtype for name, dtype in OUTPUTS.items() if self.get(f"{name}_output")), None)
        exact = output == torch.int32
        if self.grouping == "k_contiguous":
            a, b = self._k_grouped_operands()
        else:
            a, b = self._tokens(exact), self._weights(exact)
        d = self._output(output or (torch.float16 if self.a == "fp16" else torch.bfloat16))
        steps = self._steps(d[0] if isinstance(d, tuple) else d)
        if steps:
            self.how["epilogue"] = steps[0] if len(steps) == 1 else epilogue.Chain(*steps)
        if self.get("add_c"):
            data = d[0] if isinstance(d, tuple) else d
            self.how["c"] = d if self.get("in_place") else placeholder(*data.shape[:-1], self.n, dtype=data.dtype)
        for name, dtype in (("bias", torch.bfloat16), ("fp32_bias", torch.float32)):
            if self.get(name):
                self.how["bias"] = placeholder(*self.each_b, self.n, dtype=dtype)
        if "compiled_dims" in self.fields and self.grouping not in ("batched", "batch_sum"):
            bits = self.get("compiled_dims") & ~(K if self.grouping == "k_contiguous" else 0)
            self.how["compiled_dims"] = "".join(dim for bit, dim in ((M, "m"), (N, "n"), (K, "k")) if bits & bit)
        self._call(a, b, d)

    def _call(self, a: Any, b: Any, d: Any) -> None:
        heads = [self.get(f"head_{part}") for part in ("left", "skipped", "right")]
        expected = self.get("expected_m")
        fp32 = self.get("fp32_scales")
        before = deep_gemm.get_fp32_scales("cpu")
        deep_gemm.set_fp32_scales(bool(fp32), "cpu")
        try:
            if any(heads):
                deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, tuple(heads), **self.how)
            else:
                deep_gemm.gemm(a, b, d, grouping=self._grouping(expected), **self.how)
        finally:
            deep_gemm.set_fp32_scales(before, "cpu")

    def _grouping(self, expected: int) -> Any:
        if self.grouping == "masked":
            return deep_gemm.Masked(torch.zeros(self.groups, dtype=torch.int32), expected or self.m)
        if self.grouping in ("m_contiguous", "m_psum"):
            psum = self.grouping == "m_psum"
            layout = placeholder(self.groups if psum else self.m, dtype=torch.int32)
            return deep_gemm.Contiguous(layout, psum, expected_m=expected or None)
        if self.grouping == "k_contiguous":
            return deep_gemm.KGroups(self._ks(), placeholder(self.groups, dtype=torch.int32), self._psum_of_k())
        if self.grouping == "batch_sum":
            return deep_gemm.Batched("bmk,bnk->mn")
        return deep_gemm.Batched(self._form()) if self.grouping == "batched" else None

    # Operands

    def _tokens(self, exact: bool) -> Any:
        k = self.k // self.groups if self.grouping == "batch_sum" else self.k
        data = self._matrix(self.each_a, self.m, k, self.a, "a")
        if self.a in ("bf16", "fp16") or exact:
            return data
        if self.a == "s8":
            groups = self.get("gran_k_a")
            scales = along_m(self.m, ceil_div(k, groups), *self.each_a) if groups else floats(*self.each_a, self.m)
            zeros = placeholder(*self.each_a, self.m, dtype=torch.int32)
            return (data, scales, zeros) if self.get("asymmetric_a") else (data, scales)
        if self.get("token_scales"):
            return data, floats(*self.each_a, self.m)
        return data, self._in_form(self._scales("a", self.m, k, self.each_a), "a")

    def _weights(self, exact: bool) -> Any:
        if self.b in PACKED:
            return self._packed_weights()
        k = self.k // self.groups if self.grouping == "batch_sum" else self.k
        data = self._matrix(self.each_b, self.n, k, self.b, "b")
        if self.b in ("bf16", "fp16") or exact:
            return data
        if self.b == "s8":
            groups, rows = self.get("gran_k_b"), 1 if self.get("per_row_b") else 128
            if not groups or self.get("channel_scales"):
                return data, floats(*self.each_b, self.n)
            self.how["recipe"] = (1, rows, groups)
            return data, along_m(ceil_div(self.n, rows), ceil_div(k, groups), *self.each_b)
        scales = self._scales("b", self.n, k, self.each_b)
        (rows_a, k_a), (rows_b, k_b) = self.granularities["a"], self.granularities["b"]
        one = k_a == k_b or self.grouping == "batched"
        self.how["recipe"] = (rows_a, rows_b, k_b) if one else ((rows_a, k_a), (rows_b, k_b))
        return data, self._in_form(scales, "b")

    def _matrix(self, each: tuple[int, ...], rows: int, k: int, element: str, name: str) -> torch.Tensor:
        """[.., rows, K]; of a batch with the dimensions as the expression has them."""
        halves = element == "e2m1r" or (name == "a" and self.get("int4_a"))
        dtype = PLAIN.get(element, CODES)
        k = k // 2 if halves else k
        along_rows = self.get(f"mn_major_{name}") or (self.grouping == "batched" and self._form() == GRADIENT)
        if self.grouping == "batched" and (name == "a" or self._form() == GRADIENT):
            lines = (k, *each, rows) if along_rows else (rows, *each, k)
            lying = placeholder(*lines, dtype=dtype)
            return lying.transpose(0, 2) if along_rows and self._form() != GRADIENT else lying
        if along_rows:
            lying = placeholder(*each, k, rows, dtype=dtype)
            return lying if self.grouping == "batched" else lying.mT
        return placeholder(*each, rows, k, dtype=dtype)

    def _form(self) -> str:
        if self.get("compiled_dims", N | K) == M | N:
            return GRADIENT
        return BATCHED[self.get("mn_major_b")]

    @property
    def granularities(self) -> dict[str, tuple[int, int]]:
        """Rows and K that share a scale of A, and of B."""
        default_b = 32 if self.b == "e2m1r" else 128
        k_a, k_b = self.get("gran_k_a", 32 if self.b == self.a == "e2m1r" else 128), self.get("gran_k_b", default_b)
        blocks = not self.get("per_row_b") and self.b == "e4m3" and not self._exponents
        if blocks and k_b != 128:
            blocks = False
        return {"a": (1, k_a), "b": (128 if blocks else 1, k_b)}

    def _scales(self, name: str, rows: int, k: int, each: tuple[int, ...]) -> torch.Tensor:
        per, gran_k = self.granularities[name]
        if self._in_words(name):
            return along_m(rows, ceil_div(k, 4 * gran_k), *each, dtype=torch.int32)
        return along_m(ceil_div(rows, per), ceil_div(k, gran_k), *each, dtype=self._scale_dtype(gran_k))

    @property
    def _exponents(self) -> bool:
        return bool(self.get("exponent_scales")) or (self.blackwell and not self.get("fp32_scales"))

    def _in_words(self, name: str) -> bool:
        return self._exponents and not self.get(f"packs_scales_{name}")

    def _scale_dtype(self, gran_k: int) -> torch.dtype:
        if gran_k == 16:
            return torch.float8_e4m3fn
        return torch.float8_e8m0fnu if self.get("exponent_scales") else torch.float32

    def _in_form(self, scales: torch.Tensor, name: str) -> torch.Tensor:
        """With the dimensions that the operand has."""
        if self.grouping != "batched":
            return scales
        if self._form() == GRADIENT:
            return scales.permute(2, 0, 1)
        if name == "a":
            return scales.transpose(0, 1)
        return scales.mT if self._form() == BATCHED[1] else scales

    def _packed_weights(self) -> Any:
        beside = {"bf16": "bf16", "fp16": "bf16", "s8": "int8"}.get(self.a, "fp8")
        if self.get("int4_a"):
            beside = "int4"
        element, order = PACKED[self.b], self.b
        whole = self.get("channel_scales") or (beside in ("int8", "int4") and not self.get("gran_k_b"))
        group = None if whole else self.get("gran_k_b", 32 if (self.b, beside) == ("e2m1", "fp8") else 128)
        zeros = self.get("zeros_k")
        if zeros > 0 and group is None:
            group, order = zeros, TWO_LEVELS
        if order == FOLDED:
            group = 32
        shape, converted = (*self.each_b, self.n, self.k), bool(self.get("conversion_scales"))
        even = bool(self.get("fast_accumulation"))
        weights = blank_weights(shape, element, beside, group, order, second_scales=converted, near_scales=even)
        rows = self.get("gate_rows") - len(ROWS)
        return replace(weights, gate_up=ROWS[rows]) if rows >= 0 else weights

    def _ks(self) -> list[int]:
        step = 128 if self.k // self.groups >= 128 else 16
        each = self.k // self.groups // step * step
        return [each] * (self.groups - 1) + [self.k - each * (self.groups - 1)]

    def _psum_of_k(self) -> bool:
        """Groups of FP8 that SM100 copies first, since their ends are the device's to say."""
        maps = self.get("group_maps") or self.get("mn_major_a")
        return self.blackwell and self.a == "e4m3" and not maps

    def _k_grouped_operands(self) -> tuple[Any, Any]:
        flat = self.get("group_maps") and self.a not in ("bf16", "fp16") and not self.get("mn_major_a")
        flat = flat or self.a == "e2m1r"  # FP4 has no other form
        operands = []
        for name, element, rows in (("a", self.a, self.m), ("b", self.b, self.n)):
            halves = 2 if element == "e2m1r" else 1
            dtype = PLAIN.get(element, CODES)
            shape = (rows * self.k // halves,) if flat else (self.k, rows)
            data = placeholder(*shape, dtype=dtype)
            if element in ("bf16", "fp16"):
                operands.append(data)
                continue
            gran_k = self.granularities[name][1]
            words = self._in_words(name)
            entry = 4 * gran_k if words else gran_k
            entries = sum(ceil_div(k, entry) for k in self._ks())
            kind = torch.int32 if words else self._scale_dtype(gran_k)
            operands.append((data, along_m(rows, entries, dtype=kind).mT))
            self.how["recipe"] = (1, 1, gran_k)
        return operands[0], operands[1]

    # D

    def _output(self, dtype: torch.dtype) -> Any:
        kept = self.n // 2 if self.get("gate") else self.n
        left, skipped, right = (self.get(f"head_{part}") for part in ("left", "skipped", "right"))
        if skipped:
            kept = kept // (left + right) * (left + skipped + right)
        each = {"k_contiguous": (self.groups,), "masked": (self.groups,)}.get(self.grouping, ())
        shape = (*each, self.m, kept)
        if self.grouping == "batched":
            shape = (self.groups, self.m, kept) if self._form() == GRADIENT else (self.m, self.groups, kept)
        scales, words = self.get("quantised"), self.get("quantised_words")
        if not scales and not words:
            return placeholder(*shape, dtype=dtype)
        q = placeholder(*shape, dtype=torch.int8 if self.get("quantised_int8") else torch.float8_e4m3fn)
        if words:
            return q, along_m(self.m, ceil_div(kept, 4 * words), *each, dtype=torch.int32)
        return q, along_m(self.m, ceil_div(kept, scales), *each)

    def _steps(self, d: torch.Tensor) -> list[epilogue.Epilogue]:
        steps: list[epilogue.Epilogue] = [epilogue.Alpha(0.5)] if self.get("alpha") else []
        kind, rows = KINDS[self.get("gate")], ROWS[self.get("gate_rows") % len(ROWS)]
        if kind != "none":
            steps.append(
                epilogue.SwiGLU(layout=rows)
                if kind == "swiglu"
                else epilogue.GeGLU(rows, "tanh" if kind == "geglu_tanh" else "none")
            )
        if self.get("row_scale"):
            steps.append(epilogue.RowScale(floats(*d.shape[:-1])))
        if self.get("random_rounding"):
            steps.append(epilogue.BF16StochasticRounding())
        return steps


def floats(*shape: int) -> torch.Tensor:
    return placeholder(*shape, dtype=torch.float32)


def along_m(rows: int, entries: int, *each: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """`[.., rows, entries]`, as products read scales: M contiguous, padded to 16 bytes."""
    padded = get_tma_aligned_size(rows, dtype.itemsize)
    return placeholder(*each, entries, padded, dtype=dtype).mT[..., :rows, :]
