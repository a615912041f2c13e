"""Each form in which a client calls a product (tests/data/client_forms.json): it binds, and it is right."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from grouped_inputs import alignment_of
from inputs import FP8, ceil_div, random_values
from refresh_client_forms import calls_in, public_names
from scale_forms import Form, laid_out, written

import deep_gemm
from deep_gemm import simulator

RECORD = json.loads((Path(__file__).parents[1] / "data" / "client_forms.json").read_text())
M, N, K = 16, 136, 256  # rows of each expert
EXPERTS, ROWS = 2, 32
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class Operand:
    """[.., rows, K] in the form that the record names, and in FP64."""

    def __init__(self, form: dict[str, Any], shape: tuple[int, ...], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        *groups, rows, k = shape
        if form["data"] == "bf16":
            self.given = self.data = random_values(shape, "cpu", seed).bfloat16()
            self.exact = self.data.double()
            return
        if form["data"] == "fp4":
            codes = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
            self.data = (codes[..., ::2] | codes[..., 1::2] << 4).view(torch.int8)
            values = torch.cat((E2M1, -E2M1)).double()[codes.long()]
        else:
            self.data = random_values(shape, "cpu", seed).to(FP8)
            values = self.data.double()
        per_scale = form["rows"], form["k"]
        scales = torch.exp2(
            torch.randint(
                -4, 4, (*groups, ceil_div(rows, per_scale[0]), ceil_div(k, per_scale[1])), generator=generator
            ).float()
        )
        if form["scales"] == "any":
            scales = scales * (1 + torch.rand(scales.shape, generator=generator))
        self.scales = scales
        every = scales.double().repeat_interleave(per_scale[0], -2)[..., :rows, :]
        self.exact = values * every.repeat_interleave(per_scale[1], -1)[..., :k]
        how = Form("words" if form["scales"] == "words" else "fp32", form["lying"])
        self.given = self.data, laid_out(written(scales, how), how)

    def with_batch_inside(self) -> Any:
        """[h, b, k] as [b, h, k], scales too."""
        return tuple(part.movedim(0, 1) for part in self.given)


def run(form: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The call, as the record says it; D and what it should be."""
    grouping, function = form["grouping"], getattr(deep_gemm, form["function"])
    arguments: dict[str, Any] = {"expected_m": 18, "expr": grouping}
    if grouping == "k_groups":
        return run_k_groups(form, function)
    grouped = grouping != "dense"
    a_shape = {"dense": (M, K), "contiguous": (EXPERTS * ROWS, K), "psum": (EXPERTS * ROWS, K)}.get(
        grouping, (EXPERTS, ROWS, K)
    )
    a, b = Operand(form["a"], a_shape, 1), Operand(form["b"], (EXPERTS, N, K) if grouped else (N, K), 2)
    wanted = a.exact.view(-1, ROWS, K) @ b.exact.mT if grouped else a.exact @ b.exact.mT
    einsum = "->" in grouping
    arguments |= {"a": a.with_batch_inside() if einsum else a.given, "b": b.given}
    shape = (ROWS, EXPERTS, N) if einsum else wanted.shape if grouping in ("dense", "masked") else (EXPERTS * ROWS, N)
    d = arguments["d"] = torch.full(shape, float("nan"), dtype=getattr(torch, form["d"]))
    if grouping == "contiguous":
        arguments["layout"] = torch.arange(EXPERTS, dtype=torch.int32).repeat_interleave(ROWS)
    elif grouping == "psum":
        arguments["layout"] = (torch.arange(EXPERTS, dtype=torch.int32) + 1) * ROWS
    elif grouping == "masked":
        arguments["counts"] = torch.full((EXPERTS,), ROWS, dtype=torch.int32)
    call(form, function, arguments)
    return d, wanted.movedim(0, 1) if einsum else wanted.reshape(shape)


def run_k_groups(form: dict[str, Any], function: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands flattened group by group, scales [rows, blocks]."""
    ks = [128, 256]
    parts = [[Operand(form[name], (rows, k), seed + k) for k in ks] for name, rows, seed in (("a", M, 1), ("b", N, 2))]
    pairs = [(torch.cat([x.data.flatten() for x in each]), torch.cat([x.scales for x in each], 1)) for each in parts]
    d = torch.ones((len(ks), M, N), dtype=getattr(torch, form["d"]))
    wanted = torch.stack([x.exact @ y.exact.T + 1 for x, y in zip(*parts, strict=True)])
    named = {"a": pairs[0], "b": pairs[1], "d": d, "c": d, "ks": ks, "counts": torch.tensor(ks, dtype=torch.int32)}
    call(form, function, named)
    return d, wanted


def call(form: dict[str, Any], function: Any, arguments: dict[str, Any]) -> None:
    """Lists are tuples: JSON has none. A string that names an argument stands for it."""

    def value_of(given: Any) -> Any:
        return (
            arguments.get(given, given)
            if isinstance(given, str)
            else tuple(given)
            if isinstance(given, list)
            else given
        )

    with alignment_of(ROWS):
        function(
            *(arguments[name] for name in form["positional"]),
            **{name: value_of(given) for name, given in form["keywords"].items()},
        )


CASES = [(target, form) for form in RECORD["forms"] for target in form["targets"]]


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("target", "form"), CASES, ids=[f"{t}-{f['client']}-{f['what']}" for t, f in CASES])
def test_a_form_is_right(target, form) -> None:
    with simulator.options(target=target):
        d, wanted = run(form)
    assert d.isfinite().all()
    error = (d.double() - wanted).norm() / wanted.norm()
    assert error < (1e-6 if d.dtype == torch.float32 else 3e-3)


@pytest.mark.parametrize("client", sorted({each["client"] for each in RECORD["calls"]}))
def test_recorded_calls_bind(client) -> None:
    """By position and keyword, to the signatures that we have. `*` stands for what a wrapper hands on."""
    absent = set(RECORD["absent"])
    for each in RECORD["calls"]:
        if each["client"] != client or each["function"] in absent:
            continue
        signature = inspect.signature(getattr(deep_gemm, each["function"]))
        known = signature.parameters
        keywords = [name for name in each["keywords"] if name != "*"]
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
        assert takes_any or set(keywords) <= set(known), f"{each} has keywords that we do not"
        bind = signature.bind_partial if "*" in each["keywords"] else signature.bind
        bind(*range(each["positional"]), **dict.fromkeys(keywords))


def test_absent_names_are_absent() -> None:
    assert [name for name in RECORD["absent"] if hasattr(deep_gemm, name)] == []


def test_every_recorded_form_names_a_function_and_a_target() -> None:
    assert {form["client"] for form in RECORD["forms"]} >= {"vllm", "sglang", "transformers"}
    for form in RECORD["forms"]:
        assert set(form["targets"]) <= {"sm_90a", "sm_100a", "sm_120a"}
        assert form["targets"]
        assert hasattr(deep_gemm, form["function"])


def test_calls_are_found_in_sources() -> None:
    source = """
import deep_gemm as gemm_module
import deep_gemm
from deep_gemm.utils import per_token_cast_to_fp8 as cast, ceil_div
from client import deep_gemm_wrapper, fp8_gemm_nn
deep_gemm.fp8_gemm_nt(a, b, d, recipe=r)
_fp8_gemm_nt_impl(*args, disable_ue8m0_cast=True, **kwargs)
ceil_div(1, 2)
fp8_gemm_nn(a, b, d)
deep_gemm_wrapper.fp8_gemm_tt(a, b, d)
torch.einsum(e, a, b)
"""
    found = {(call.function, call.positional, call.keywords) for call in calls_in("x", source, public_names())}
    assert found == {
        ("fp8_gemm_nt", 3, ("recipe",)),
        ("fp8_gemm_nt", 0, ("*", "disable_ue8m0_cast")),
        ("ceil_div", 2, ()),
    }
