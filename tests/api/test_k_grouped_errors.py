"""Wrong calls of products of K groups are refused in a sentence, and write nothing."""

from __future__ import annotations

import pytest
import torch
from devices import EACH_ARCH, FEW
from inputs import FP8, GuardedOutput, Operand
from k_grouped_inputs import LAYOUTS, call, groups, stacked

REFUSALS = {
    "d is fp64": (
        lambda x: x.update(d=x["d"].double()),
        TypeError,
        r"d must be bfloat16, float32 or float16, got float64",
    ),
    "ks do not add up": (
        lambda x: x.update(ks=[128, 128]),
        ValueError,
        r"sum_k=256 as ks_cpu adds up|40 \* 256 elements",
    ),
    "a k of 8": (
        lambda x: x.update(ks=[136, 40]),
        ValueError,
        r"multiple of 16, but ks_cpu\[0\] is 136: pad with zeros to 144",
    ),
    "a k beyond 32 bits": (lambda x: x.update(ks=[2**31, 48]), ValueError, r"ks_cpu\[0\] is 2147483648.*32 bits"),
    "negative": (lambda x: x.update(ks=[192, -16]), ValueError, r"ks_cpu\[1\] is -16"),
    "one k too few": (lambda x: x.update(ks=[176]), ValueError, r"each of d's 2 groups, got 1"),
    "sizes are int64": (lambda x: x.update(sizes=x["sizes"].long()), TypeError, r"grouped_layout must be int32"),
    "sizes too long": (
        lambda x: x.update(sizes=x["sizes"].repeat(2)),
        ValueError,
        r"grouped_layout must be \[groups\] = \[2\], got shape \[4\]",
    ),
    "scales of whole K": (
        lambda x: x.update(a=Operand(x["a"].data, x["a"].scales[:1])),
        ValueError,
        r"a's scales must be \[2, 40\].*got shape \[1, 40\]",
    ),
    "b has other rows": (lambda x: x.update(b=x["a"]), ValueError, r"b has N=40 but d has N=72|72 \* 176 elements"),
    "recipe of blocks": (lambda x: x.update(recipe=(1, 128, 128)), ValueError, r"recipe \(1, 1, 128\)"),
    "a is bf16": (
        lambda x: x.update(a=Operand(x["a"].data.bfloat16(), x["a"].scales)),
        TypeError,
        r"a must be float8_e4m3fn",
    ),
    "c is bf16": (lambda x: x.update(c=x["d"].bfloat16()), TypeError, r"c must have d's dtype float32"),
    "no sizes": (
        lambda x: x.update(ks=None),
        ValueError,
        r"ks_cpu may be missing in the psum layout only|each of d's 2 groups",
    ),
}


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", REFUSALS)
def test_refused(device, layout, name) -> None:
    spoil, exception, message = REFUSALS[name]
    x = groups(40, 72, [128, 48], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    arguments = {
        "a": stacked(x.a, layout),
        "b": stacked(x.b, layout),
        "d": out.tensor,
        "ks": x.ks,
        "sizes": x.sizes(),
        "c": None,
        "recipe": (1, 1, 128),
    }
    spoil(arguments)
    with pytest.raises(exception, match=message):
        call(layout)(*(arguments[key] for key in ("a", "b", "d", "ks", "sizes", "c", "recipe")))
    out.assert_untouched()


# Of one layout alone. In the psum layout where `psum` stands in the name.
REFUSALS_TN = {
    "a has other rows": (lambda x: x.update(a=x["b"]), r"a has M=72 but d has M=40"),
    "b has another K": (
        lambda x: x.update(b=Operand(x["b"].data[:-16], x["b"].scales)),
        r"b has sum_k=160 but a has sum_k=176",
    ),
    "a's lines overlap": (
        lambda x: x.update(a=Operand(x["a"].data.view(torch.uint8)[:1].expand(176, 40).view(FP8), x["a"].scales)),
        r"a's rows overlap: row stride 0 is less than M=40",
    ),
    "psum: a is too short": (
        lambda x: x.update(a=Operand(x["a"].data[:-16], x["a"].scales), b=Operand(x["b"].data[:-16], x["b"].scales)),
        r"a must have at least 176 rows of K in the psum layout, got 160",
    ),
    "psum: scales of one dimension": (
        lambda x: x.update(ks=None, a=Operand(x["a"].data, x["a"].scales[0])),
        r"a's scales must be \[K blocks, M\], got shape \[40\]",
    ),
}


REFUSALS_NT = {
    "a has gaps": (
        lambda x: x.update(a=Operand(x["a"].data.view(torch.uint8).repeat_interleave(2).view(FP8)[::2], x["a"].scales)),
        r"a must be contiguous, got stride 2",
    ),
}


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(("layout", "name"), [("tn", x) for x in REFUSALS_TN] + [("nt", x) for x in REFUSALS_NT])
def test_refused_in_one_layout(device, layout, name) -> None:
    spoil, message = {**REFUSALS_TN, **REFUSALS_NT}[name]
    psum = name.startswith("psum")
    x = groups(40, 72, [128, 48], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    sizes = torch.tensor([128, 176], dtype=torch.int32, device=device) if psum else x.sizes()
    arguments = {"a": stacked(x.a, layout), "b": stacked(x.b, layout), "ks": x.ks}
    spoil(arguments)
    with pytest.raises(ValueError, match=message):
        call(layout)(arguments["a"], arguments["b"], out.tensor, arguments["ks"], sizes, use_psum_layout=psum)
    out.assert_untouched()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_gaps_are_refused_where_operands_are_flattened(device) -> None:
    x = groups(40, 72, [48, 128], device)
    out = GuardedOutput(x.shape, torch.float32, device)
    with pytest.raises(ValueError, match=r"psum layout leaves gaps.*use k_grouped_fp8_gemm_tn_contiguous"):
        call("nt")(stacked(x.a, "nt"), stacked(x.b, "nt"), out.tensor, x.ks, x.sizes(), use_psum_layout=True)
    out.assert_untouched()


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_name_given_twice(device, layout) -> None:
    x = groups(40, 72, [128], device)
    d = torch.empty(x.shape, device=device)
    a, b = stacked(x.a, layout), stacked(x.b, layout)
    with pytest.raises(TypeError, match=r"ks is the older name of ks_cpu"):
        call(layout)(a, b, d, x.ks, x.sizes(), ks=x.ks)
    with pytest.raises(TypeError, match=r"ks_tensor is the older name of grouped_layout"):
        call(layout)(a, b, d, x.ks, x.sizes(), ks_tensor=x.sizes())
    with pytest.raises(TypeError, match=r"grouped_layout is missing"):
        call(layout)(a, b, d, x.ks)
