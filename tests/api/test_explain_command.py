"""python -m deep_gemm explain: what it prints of a kernel, and what it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import refuse, succeed

from deep_gemm.__main__ import main
from deep_gemm._precompile import Operands
from deep_gemm._targets import BLACKWELL_TARGET, BLACKWELL_TARGETS, GPUS


def test_explain_prints_candidates_reasons_and_the_choice() -> None:
    printed = succeed("explain", "64", "2112", "7168")
    assert printed.count("->") == 1
    assert "refused: " in printed
    assert "constexpr GemmConfig kConfig{" in printed


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_explain_knows_operands_of_16_bits(name) -> None:
    printed = succeed("explain", "4096", "7168", "2048", f"--{name}")
    assert f".element = Element::{name}" in printed
    assert f"chosen kernel ({name.upper()} output)" in printed
    assert f".output = Element::{name}" in printed
    assert ".k = 64}" in printed


PACKED = {
    "--fp8-int4": ("s4m", 128),
    "--fp8-int4 --group-size 32 --token-scales": ("s4m", 32),
    "--fp8-int4 --group-size channel --minus-eight": ("s4", 128),
    "--int8-int4": ("s4", -1),
    "--fp8-int4 --zero-points": ("u4", 128),
    "--int8-int4 --zero-points": ("u4", -1),
    "--int8-int4 --group-size 64": ("s4", 64),
    "--int4": ("s4", -1),
    "--fp8-fp4": ("e2m1x", 128),
    "--fp8-fp4 --far-exponents": ("e2m1", 32),
    "--bf16-int4": ("s4b", 128),
    "--bf16-int4 --group-size channel": ("s4b", -1),
    "--bf16-int4 --zero-points": ("u4", 128),
    "--bf16-int4 --group-size channel --zero-points": ("u4", -1),
    "--bf16-fp4 --group-size 16": ("e2m1", 16),
    "--bf16-fp4 --far-exponents": ("e2m1", 32),
    "--bf16-fp8": ("e4m3p", 128),
}
GROUPINGS = {"contiguous": "m_contiguous", "psum": "m_psum"}
GROUPED = {"dense": [], **{name: ["--experts", "8", "--expected-m", "64"] for name in ("contiguous", "psum", "masked")}}


@pytest.mark.parametrize("grouping", GROUPED)
@pytest.mark.parametrize("options", PACKED)
def test_explain_knows_packed_weights(options, grouping, capsys, monkeypatch) -> None:
    command = ["explain", "256", "4096", "7168", *options.split(), "--grouping", grouping, *GROUPED[grouping]]
    monkeypatch.setattr(sys, "argv", ["deep_gemm", *command])
    assert main() == 0
    printed = capsys.readouterr().out
    element, group = PACKED[options]
    weights = next(line for line in printed.splitlines() if line.strip().startswith(".b = "))
    assert f"Element::{element}," in weights
    assert f".k = {group}}}" in weights
    assert f".grouping = Grouping::{GROUPINGS.get(grouping, grouping)}," in printed
    assert (f" of 8 {grouping} experts" in printed) == (grouping != "dense")


@pytest.mark.parametrize(
    ("options", "group_a", "row_blocks"),
    [("", 128, False), ("--gran-k-a 32", 32, False), ("--far-exponents", 128, True)],
)
def test_explain_knows_fp4_weights_on_blackwell(options, group_a, row_blocks, capsys, monkeypatch) -> None:
    command = ["explain", "16", "4096", "7168", "--fp8-fp4", "--target", "sm_100f", *options.split()]
    monkeypatch.setattr(sys, "argv", ["deep_gemm", *command])
    assert main() == 0
    printed = capsys.readouterr().out
    of_a, of_b = (line.strip() for line in printed.splitlines() if line.strip().startswith((".a = ", ".b = ")))
    assert ".element = Element::e2m1r," in of_b
    for line, group in ((of_a, group_a), (of_b, 32)):
        assert f".scaling = {{.type = Element::ue8m0, .rows = 1, .k = {group}}}" in line
    assert (".row_blocks = true" in printed) == row_blocks  # weights are rows of so few tokens


@pytest.mark.parametrize(
    ("options", "scaling", "alpha"),
    [
        ("", "{.type = Element::ue8m0, .rows = 1, .k = 32}", False),
        ("--group-size 16 --alpha", "{.type = Element::e4m3, .rows = 1, .k = 16}", True),
        ("--group-size 16 --scales-a packed --scales-b packed", "{.type = Element::e4m3, .rows = 1, .k = 16}", False),
    ],
)
def test_explain_knows_fp4_operands(options, scaling, alpha, capsys, monkeypatch) -> None:
    command = ["explain", "4096", "7168", "2048", "--fp4", "--target", "sm_100f", *options.split()]
    monkeypatch.setattr(sys, "argv", ["deep_gemm", *command])
    assert main() == 0
    printed = capsys.readouterr().out
    of_a, of_b = (line.strip() for line in printed.splitlines() if line.strip().startswith((".a = ", ".b = ")))
    for line in (of_a, of_b):
        assert ".element = Element::e2m1r," in line
        assert f".scaling = {scaling}" in line
    assert (".alpha = true" in printed) == alpha
    assert (".row_blocks = true" in printed) == ("packed" not in options)


def test_fp4_operands_have_scales_for_32_or_16_of_k() -> None:
    with pytest.raises(ValueError, match=r"group_size of FP4 operands must be 32 \(MXFP4\) or 16 \(NVFP4\), got 64"):
        Operands("fp4", 64)


@pytest.mark.parametrize(
    ("options", "target", "element"),
    [
        ("--int4", "sm_89", "s4i"),
        ("--int4 --group-size 128", "sm_89", "s8"),
        ("--int4 --zero-points", "sm_80", "s8"),
        ("--int4", "sm_120a", "s8"),
        ("--fp8-int4", "sm_89", "e4m3"),
        ("--fp8-fp4", "sm_86", "fp16"),
    ],
)
def test_explain_says_what_packed_weights_are_multiplied_as(options, target, element, capsys, monkeypatch) -> None:
    """Four bits by four bits where the chip multiplies them, E4M3 where it does."""
    monkeypatch.setattr(
        sys, "argv", ["deep_gemm", "explain", "64", "512", "1024", *options.split(), "--target", target]
    )
    assert main() == 0
    assert f".multiplied_as = Element::{element}}}" in capsys.readouterr().out


def test_explain_knows_experts_of_fp8() -> None:
    printed = succeed("explain", "256", "4096", "7168", "--grouping", "masked", "--experts", "8")
    assert "Grouping::masked" in printed


@pytest.mark.parametrize("target", BLACKWELL_TARGETS)
def test_explain_knows_blackwell(target) -> None:
    printed = succeed("explain", "4096", "7168", "2048", "--target", target, "--gran-k-a", "32")
    assert f", {target} with {GPUS[target].sms} SMs: " in printed
    assert "Arch::sm100" in printed
    assert ".scaling = {.type = Element::ue8m0, .rows = 1, .k = 32}" in printed
    assert ".scaling = {.type = Element::ue8m0, .rows = 1, .k = 128}" in printed


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_120a"])
def test_explain_knows_what_the_tensor_cores_of_each_gpu_multiply(target) -> None:
    """FP8 as it is from sm_89 on, in FP16 before; with FP32 scales on all of them."""
    printed = succeed("explain", "4096", "7168", "2048", "--target", target)
    assert f", {target} with {GPUS[target].sms} SMs: " in printed
    assert ("Arch::sm120" if target == "sm_120a" else "Arch::sm80") in printed
    assert ("multiplied_as = Element::fp16" in printed) == (target in ("sm_80", "sm_86"))
    assert ("multiplied_as = Element::e4m3" in printed) == (target in ("sm_89", "sm_120a"))
    assert ".scaling = {.type = Element::fp32, .rows = 128, .k = 128}" in printed


def test_explain_knows_packed_weights_on_blackwell() -> None:
    """As rows, whose conversion has a stage of 128 of K."""
    printed = succeed("explain", "64", "7168", "2048", "--fp8-int4", "--target", BLACKWELL_TARGET)
    assert "swap_ab = true" in printed
    assert ".element = Element::s4m" in printed


def test_explain_knows_who_packs_scales() -> None:
    """Those that a call packs come as tensor memory wants them."""
    command = ("explain", "4096", "7168", "2048", "--target", BLACKWELL_TARGET)
    assert "row_blocks = true" in succeed(*command)
    assert "row_blocks = false" in succeed(*command, "--scales-a", "packed")


def test_explain_knows_fp32_scales_on_blackwell() -> None:
    command = ("explain", "8", "64", "128", "--target", BLACKWELL_TARGET, "--fp32-scales")
    assert ".scaling = {.type = Element::fp32, .rows = 128, .k = 128}" in succeed(*command)
    assert "fp32_scales is of FP8 operands, not of bf16" in refuse(*command, "--bf16")


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = [sys.executable, "-m", "deep_gemm", "explain", "512", "2112", "7168", "--all"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("0", "128", "128"), "a whole number from 1 up is wanted, not '0'"),
        (("64", "7168", "2047"), "K must be a multiple of 16, got 2047: pad A and B with zeros to K=2048"),
        (("64", "7168", "2048", "--sms", "0"), "a whole number from 1 up is wanted, not '0'"),
        (("4000000000", "7168", "2048"), "M must be between 1 and 2^31 - 1, got 4000000000"),
        (("64", "7168", "2048", "--target", "sm_122a"), "invalid choice: 'sm_122a'"),
        (
            ("64", "7168", "2048", "--gran-k-b", "32", "--fp32-scales", "--target", "sm_100a"),
            "b's scales must be one float32 per 128 rows and 128 of K, not one float32 per 32 rows and 32 of K",
        ),
        (
            ("64", "7168", "2048", "--group-size", "32"),
            "group_size is of products with packed weights (fp8_int4, int8_int4, int4, fp8_fp4, bf16_int4, ",
        ),
        (("64", "7168", "2048", "--bf16", "--token-scales"), "token_scales is of products with packed weights"),
        (("64", "7168", "2048", "--experts", "8"), "experts go with a grouping, but the grouping is 'dense'"),
        (
            ("64", "7168", "2048", "--int8-int4", "--target", "sm_103a"),
            "integers are multiplied by B200's tensor cores, in code for sm_100a, not by B300's, but this is sm_103a",
        ),
        (("64", "7168", "2048", "--fp8-int4", "--fp8-fp4"), "not allowed with argument"),
    ],
)
def test_explain_refuses_what_calls_refuse(arguments, said) -> None:
    assert said in refuse("explain", *arguments)
