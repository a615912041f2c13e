"""python -m deep_gemm: what it prints, and its exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import fresh
import pytest
from cached import COMPILE
from devices import why_no_gpu
from fake_nvcc import fake_nvcc

import deep_gemm
from deep_gemm.__main__ import main
from deep_gemm._precompile import GROUPINGS, Calls
from deep_gemm._targets import AMPERE_TARGET, BLACKWELL_TARGET, BLACKWELL_TARGETS, GPUS, HOPPER_TARGET

ROOT = Path(deep_gemm.__file__).resolve().parent.parent


RUN = """
import sys
from deep_gemm.__main__ import main
sys.argv = ["deep_gemm", *{arguments!r}]
try:
    result = main()
except SystemExit as left:
    result = left.code
sys.stdout.flush()
"""


def run(*arguments: str, **environment: object) -> tuple[int, str]:
    """Exit status, and what was printed, errors too."""
    cache = os.environ.get("DG_JIT_CACHE_DIR")
    outcome = fresh.check(RUN.format(arguments=arguments), **{"DG_JIT_CACHE_DIR": cache, **environment})
    return outcome.result, outcome.stderr


def succeed(*arguments: str, **environment: object) -> str:
    status, printed = run(*arguments, **environment)
    assert status == 0, printed
    return printed


def refuse(*arguments: str, **environment: object) -> str:
    status, printed = run(*arguments, **environment)
    assert status in (1, 2), printed
    assert "Traceback" not in printed
    return printed


def facts_of(path: Path, **changes: object) -> dict:
    """What an entry's kernel.json says, after changes to it."""
    file = path / "kernel.json"
    facts = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(facts))
    return facts


@pytest.fixture
def kernels(cache: Path) -> dict[str, Path]:
    """The entries of a cache with three kernels, by name."""
    fresh.check(COMPILE + "for name in ('first', 'second', 'third'): compile(name)", DG_JIT_CACHE_DIR=cache)
    return {path.name.split(".")[0]: path for path in (cache / "cache").iterdir()}


def left_in(cache: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in (cache / "cache").iterdir())


def test_version() -> None:
    assert succeed("--version") == f"deep_gemm {deep_gemm.__version__}\n"


def test_doctor_names_what_it_found() -> None:
    printed = succeed("doctor")
    assert deep_gemm.__version__ in printed
    for name in ("GPU", "driver", "compiler", "targets", "simulator", "cache"):
        assert f"  {name} " in printed


def test_doctor_knows_targets_and_what_the_simulator_is() -> None:
    printed = succeed("doctor", DG_SIM_TARGET="sm_100f", DG_SIM_NUM_SMS=7)
    for target, gpu in GPUS.items():
        assert f"{target} ({gpu.names})" in printed
    assert re.search(r"simulator +sm_100f, 7 SMs\n", printed)
    assert "never on hardware" in printed
    printed = succeed("doctor", DG_SIM_TARGET="hopper")
    assert re.search(r"simulator +none: DG_SIM_TARGET: the simulator's target must be like sm_90a", printed)


def test_the_default_runs_a_gemm_and_checks_it() -> None:
    command = [sys.executable, "-m", "deep_gemm"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout
    assert "right: differs from the FP64 product" in printed
    if why_no_gpu():
        assert "nothing ran on a GPU" in printed
        for target in (AMPERE_TARGET, HOPPER_TARGET, BLACKWELL_TARGET):
            assert re.search(rf"kernel +M=4096 N=7168 K=2048 for {target}: ", printed)
            assert f"on the PTX simulator as {target} " in printed
        assert printed.count("right: differs from the FP64 product") == 3
        assert printed.count("none found (races") == 3
    else:
        assert "TFLOPS" in printed


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
    assert f".grouping = Grouping::{GROUPINGS[grouping]}," in printed
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
    with pytest.raises(ValueError, match=r"group_size of FP4 operands must be 32 \(MXFP4\) or 16 \(NVFP4\), but is 64"):
        Calls(product="fp4", group_size=64).fields("sm_100a")
    with pytest.raises(ValueError, match="alpha is of FP4 operands, not of bf16"):
        Calls(product="bf16", alpha=True)


@pytest.mark.parametrize(
    ("options", "target", "element"),
    [
        ("--int4", "sm_89", "s4i"),
        ("--int4 --group-size 128", "sm_89", "s8"),
        ("--int4 --zero-points", "sm_80", "s8"),
        ("--int4", "sm_120", "s8"),
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


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_120"])
def test_explain_knows_what_the_tensor_cores_of_each_gpu_multiply(target) -> None:
    """FP8 as it is from sm_89 on, in FP16 before; with FP32 scales on all of them."""
    printed = succeed("explain", "4096", "7168", "2048", "--target", target)
    assert f", {target} with {GPUS[target].sms} SMs: " in printed
    assert "Arch::sm80" in printed
    assert ("multiplied_as = Element::fp16" in printed) == (target in ("sm_80", "sm_86"))
    assert ("multiplied_as = Element::e4m3" in printed) == (target in ("sm_89", "sm_120"))
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
        (("64", "7168", "2047"), "K must be a multiple of 16, but is 2047: pad A and B with zeros to K=2048"),
        (("64", "7168", "2048", "--sms", "0"), "a whole number from 1 up is wanted, not '0'"),
        (("4000000000", "7168", "2048"), "M must be between 1 and 2^31 - 1, but is 4000000000"),
        (("64", "7168", "2048", "--target", "sm_120a"), "invalid choice: 'sm_120a'"),
        (("64", "7168", "2048", "--gran-k-b", "32"), "the pair has no scales of b for every 32 of K"),
        (
            ("64", "7168", "2048", "--group-size", "32"),
            "group_size is of products with packed weights (fp8_int4, int8_int4, int4, fp8_fp4, bf16_int4, ",
        ),
        (("64", "7168", "2048", "--bf16", "--token-scales"), "token_scales is of products with packed weights"),
        (("64", "7168", "2048", "--experts", "8"), "experts go with a grouping, but the grouping is 'dense'"),
        (
            ("64", "7168", "2048", "--int8-int4", "--target", "sm_100f"),
            "integers are multiplied by B200's tensor cores, in code for sm_100a, not by B300's, but this is sm_100f",
        ),
        (("64", "7168", "2048", "--fp8-int4", "--fp8-fp4"), "not allowed with argument"),
    ],
)
def test_explain_refuses_what_calls_refuse(arguments, said) -> None:
    assert said in refuse("explain", *arguments)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--bf16"],
        ["--fp16"],
        ["--fp16-output"],
        ["--int8", "--bias", "bf16"],
        ["--int8", "--int8-scales", "blocks", "--int8-tokens", "groups"],
        ["--int8", "--asymmetric"],
        ["--fp8-int4", "--token-scales"],
        ["--fp8-fp4", "--far-exponents"],
        ["--bf16-fp4"],
    ],
    ids=" ".join,
)
def test_precompile_needs_no_gpu_and_says_what_it_stored(cache, options) -> None:
    command = ("precompile", "256x512", "--max-m", "16", *options)
    printed = succeed(*command, DG_JIT_CACHE_DIR=cache)
    images = len(list(cache.rglob("*.cubin")))
    assert f": {images} kernels for {HOPPER_TARGET}" in printed
    assert re.search(rf"compiled +{images}\n +found +0 .*\n +failed +0\n", printed)
    assert f"{images} of {images} ({cache})" in printed
    printed = succeed(*command, DG_JIT_CACHE_DIR=cache)
    assert re.search(rf"compiled +0\n +found +{images} compiled earlier\n", printed)
    assert f"{images} of {images} ({cache})" in printed


CALL = """
from deep_gemm import simulator
simulator.set_options(target={target!r}, num_sms={sms})
from deep_gemm.utils import per_block_cast_to_fp8, per_token_cast_to_fp8
a = per_token_cast_to_fp8(torch.randn(16, 512), use_ue8m0=True)
b = per_block_cast_to_fp8(torch.randn(256, 512), use_ue8m0=True)
import deep_gemm
deep_gemm.fp8_gemm_nt(a, b, torch.empty(16, 256, dtype=torch.bfloat16))
"""


@pytest.mark.parametrize(
    ("target", "options", "environment"),
    [
        (AMPERE_TARGET, [], {}),
        ("sm_121", [], {}),
        (BLACKWELL_TARGET, [], {}),
        (BLACKWELL_TARGET, ["--fp32-scales"], {"DG_FP32_SCALES": 1}),
    ],
)
def test_a_call_on_any_gpu_gets_a_kernel_that_was_precompiled(cache, target, options, environment) -> None:
    succeed("precompile", "256x512", "--max-m", "16", "--target", target, *options, DG_JIT_CACHE_DIR=cache)
    precompiled = {path.read_text() for path in cache.rglob("kernel.cu")}
    code = CALL.format(target=target, sms=GPUS[target].sms)
    fresh.check(code, DG_JIT_CACHE_DIR=cache, **environment)
    called = {path.with_name("kernel.cu").read_text() for path in cache.rglob("kernel.ptx")}
    assert len([text for text in called if "GemmConfig" in text]) == 1
    assert {text for text in called if "GemmConfig" in text} <= precompiled


PACKED_CALLS = """
import deep_gemm
from deep_gemm import simulator
simulator.set_options(target="{target}", num_sms={sms})
experts, m, n, k = {experts}, 128, 128, 256
shape = (experts, m, k) if "{grouping}" == "masked" else (experts * m, k)
values = torch.full((n, k) if "{grouping}" == "dense" else (experts, n, k), {one}, dtype=torch.int8)
values = values.to(torch.float8_e4m3fn) if "{element}" == "e4m3" else values
scales = torch.ones(values.shape)[..., ::{size} or k]
w = deep_gemm.pack_weights(values, scales, element="{element}", activations="{activations}", group_size={size})
a = torch.ones(shape).to({{"int8": torch.int8, "fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16}}[w.activations])
a = a if w.activations == "bf16" else (a, torch.ones(shape[:-1]))
if w.order == "e2m1r":
    a = a[0], deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(torch.ones((*shape[:-1], 2)))
d = torch.empty((*shape[:-1], n), dtype=torch.bfloat16)
if "{grouping}" == "dense":
    deep_gemm.{product}_gemm_nt(a, w, d)
elif "{grouping}" == "masked":
    deep_gemm.m_grouped_{product}_gemm_nt_masked(a, w, d, torch.full((experts,), 40, dtype=torch.int32), 40)
else:
    layout = torch.arange(experts, dtype=torch.int32).repeat_interleave(m)
    deep_gemm.m_grouped_{product}_gemm_nt_contiguous(a, w, d, layout)
assert bool((d[..., :40, :] == k).all())
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("product", "element", "activations", "size", "grouping", "experts", "target"),
    [
        ("fp8_int4", "int4", "fp8", 64, "dense", 1, "sm_90a"),
        ("int8_int4", "int4", "int8", None, "contiguous", 2, "sm_90a"),
        ("fp8_fp4", "e2m1", "fp8", 32, "masked", 2, "sm_90a"),
        ("fp8_fp4", "e2m1", "fp8", 32, "masked", 2, "sm_100f"),
        ("fp8_fp4", "e2m1", "fp8", 32, "contiguous", 2, "sm_100a"),
        ("fp8_int4", "int4", "fp8", 64, "dense", 1, "sm_100a"),
        ("int8_int4", "int4", "int8", None, "contiguous", 2, "sm_100a"),
        ("bf16_int4", "int4", "bf16", 128, "masked", 2, "sm_103a"),
        ("bf16_fp4", "e2m1", "bf16", 32, "dense", 1, "sm_100f"),
        ("bf16_fp8", "e4m3", "bf16", 128, "contiguous", 2, "sm_100a"),
    ],
)
def test_calls_with_packed_weights_get_precompiled_kernels(
    cache, product, element, activations, size, grouping, experts, target
) -> None:
    names = {"product": product, "grouping": grouping, "experts": experts, "target": target}
    arguments = {**names, "group_size": size, "max_m": 256}
    arguments["token_scales"] = activations == "fp8" and (target == "sm_90a" or element != "e2m1")
    code = f"import deep_gemm; result = [r.error for r in deep_gemm.precompile([(128, 256)], **{arguments!r})]"
    errors = fresh.check(code, DG_JIT_CACHE_DIR=cache).result
    precompiled = {path.read_text() for path in cache.rglob("kernel.cu")}
    assert errors == [None] * len(precompiled)
    assert precompiled
    one = 2 if element == "e2m1" else 1  # the code of 1
    call = PACKED_CALLS.format(
        **names, element=element, activations=activations, size=size, one=one, sms=GPUS[target].sms
    )
    fresh.check(call, DG_JIT_CACHE_DIR=cache)
    called = {path.with_name("kernel.cu").read_text() for path in cache.rglob("kernel.ptx")}
    called = {text for text in called if "GemmConfig" in text}  # not what packs the scales of this test
    assert len(called) == 1
    assert called <= precompiled


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"product": "int2"}, "product must be one of fp8, bf16, fp16, int8, fp4, fp8_int4, .*, but is 'int2'"),
        ({"grouping": "m_psum"}, "grouping must be one of dense, contiguous, psum, masked, but is 'm_psum'"),
        ({"output": "fp8"}, "output must be None or one of bf16, fp16, fp32, but is 'fp8'"),
        ({"bias": "fp16"}, "bias must be None or one of bf16, fp32, but is 'fp16'"),
        ({"minus_eight": True}, "minus_eight is of products with packed weights"),
        ({"experts": 2}, "experts go with a grouping"),
        ({"target": "sm_75"}, "target must be one of sm_80, .*, but is 'sm_75'"),
        ({"max_m": 0}, "max_m must be at least 1, but is 0"),
    ],
)
def test_precompile_of_calls_that_there_are_none_of_is_refused(changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        deep_gemm.precompile([(128, 256)], **changes)


@pytest.mark.parametrize("place", ["below a file", "nowhere"])
def test_precompile_says_that_nothing_could_be_stored(tmp_path, place) -> None:
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "cache" if place == "below a file" else ""
    status, printed = run("precompile", "256x512", "--max-m", "16", DG_JIT_CACHE_DIR=directory, HOME=None)
    assert status == 1
    assert re.search(r"compiled +1\n", printed)
    assert re.search(r"in the cache +0 of 1 \(", printed)
    assert re.search(r"not stored +1, which end with this process", printed)


def test_precompile_says_what_failed(cache, tmp_path) -> None:
    compiler = {"DG_JIT_USE_NVRTC": 0, "DG_JIT_NVCC_COMPILER": fake_nvcc(tmp_path, "exit 1")}
    status, printed = run("precompile", "256x512", "--max-m", "16", DG_JIT_CACHE_DIR=cache, **compiler)
    assert status == 1
    assert "failed: fp8_gemm_sm90_dense_swapped_64x8: " in printed
    assert re.search(r"compiled +0\n", printed)
    assert re.search(r"in the cache +0 of 1 \(", printed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("7168x2047",), "K must be a multiple of 16, but is 2047: pad A and B with zeros to K=2048"),
        (("7168x2048", "--max-m", "0"), "--max-m: a whole number from 1 up is wanted, not '0'"),
        (("7168x2048", "--sms", "-1"), "--sms: a whole number from 1 up is wanted, not '-1'"),
        (("7168*2048",), "a weight's shape is NxK, as 7168x2048, not '7168*2048'"),
        (("7168x2048x1",), "a weight's shape is NxK, as 7168x2048, not '7168x2048x1'"),
        (("0x2048",), "a weight's shape is NxK, as 7168x2048, not '0x2048'"),
    ],
)
def test_precompile_refuses_what_calls_refuse(cache, arguments, said) -> None:
    assert said in refuse("precompile", *arguments, DG_JIT_CACHE_DIR=cache)
    assert not cache.exists()


def test_cache_list_shows_each_kernel(cache, kernels) -> None:
    lines = succeed("cache", "list", DG_JIT_CACHE_DIR=cache).splitlines()
    assert [line.split()[-1] for line in lines] == sorted(path.name for path in kernels.values())
    assert all(f" {HOPPER_TARGET} " in line and " cubin " in line for line in lines)


def test_cache_size_adds_up_files(cache, kernels) -> None:
    (cache / "tuned").mkdir()
    (cache / "tuned" / "answer.json").write_text("x" * 3_000_000)
    printed = succeed("cache", "size", DG_JIT_CACHE_DIR=cache)
    assert re.search(r"cache +3 kernels +0\.0 MB", printed)
    assert re.search(r"tuned +1 winners +3\.0 MB", printed)
    assert re.search(r"all +3\.0 MB", printed)


def test_cache_verify_finds_nothing_in_an_intact_cache(cache, kernels) -> None:
    assert "3 kernels" in (printed := succeed("cache", "verify", DG_JIT_CACHE_DIR=cache))
    assert "none damaged" in printed


def flip(path: Path) -> None:
    image = bytearray((path / "kernel.cubin").read_bytes())
    image[100] ^= 1
    (path / "kernel.cubin").write_bytes(image)


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "its image is not what was written": flip,
    "its image has another size": lambda path: (path / "kernel.cubin").write_bytes(b"short"),
    "no readable file": lambda path: replace_by_pipe(path / "kernel.json"),
    "kernel.ptx": lambda path: replace_by_pipe(path / "kernel.cubin"),
    "its kernel.json belongs to something else": lambda path: (path / "kernel.json").write_text("{"),
    "its kernel.json belongs to something else  ": lambda path: (path / "kernel.json").write_text("[" * 1_000_000),
    "its kernel.json belongs to something else ": lambda path: facts_of(path, key="0" * 32) and None,
}


@pytest.mark.parametrize("said", DAMAGES)
def test_cache_verify_reports_and_removes_what_is_damaged(cache, kernels, said) -> None:
    DAMAGES[said](kernels["second"])
    status, printed = run("cache", "verify", DG_JIT_CACHE_DIR=cache)
    assert status == 1
    assert f"damaged: {kernels['second']}: " in printed
    assert said.strip() in printed
    assert "1 damaged" in printed
    assert left_in(cache) == ["first", "second", "third"]
    assert "1 damaged, deleted" in succeed("cache", "verify", "--remove", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == ["first", "third"]
    assert "none damaged" in succeed("cache", "verify", DG_JIT_CACHE_DIR=cache)


def test_cache_clear(cache, kernels) -> None:
    (cache / "mine").mkdir()
    assert "deleted 3 kernels; 0 are left" in succeed("cache", "clear", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == []
    assert not list((cache / "drafts").iterdir())
    assert (cache / "mine").exists()


def used(path: Path, year: int) -> None:
    """Let an entry have been used last in a year."""
    seconds = datetime(year, 1, 1).timestamp()
    os.utime(path, (seconds, seconds))


def test_cache_prune_by_age(cache, kernels) -> None:
    (kernels["third"] / "kernel.json").unlink()
    used(kernels["first"], 2020)
    used(kernels["third"], 1980)
    assert "deleted 2 kernels; 1 are left" in succeed("cache", "prune", "--older-than", "30", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == ["second"]


def grow(kernels: dict[str, Path]) -> None:
    """A megabyte each, used last in the order second, third, first."""
    for year, name in enumerate(("second", "third", "first"), start=2020):
        (kernels[name] / "kernel.sass").write_bytes(bytes(1_000_000))
        used(kernels[name], year)


def test_cache_prune_by_size_deletes_what_was_unused_for_longest(cache, kernels) -> None:
    grow(kernels)
    assert "deleted 0 kernels" in succeed("cache", "prune", "--max-mb", "4", DG_JIT_CACHE_DIR=cache)
    assert "deleted 1 kernels; 2 are left" in succeed("cache", "prune", "--max-mb", "2.5", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == ["first", "third"]


def test_cache_prune_by_both(cache, kernels) -> None:
    grow(kernels)
    used(kernels["first"], 2100)
    printed = succeed("cache", "prune", "--max-mb", "1.5", "--older-than", "30", DG_JIT_CACHE_DIR=cache)
    assert "deleted 2 kernels; 1 are left" in printed
    assert left_in(cache) == ["first"]
    succeed("cache", "prune", "--max-mb", "0", "--older-than", "30", DG_JIT_CACHE_DIR=cache)
    assert left_in(cache) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prune",), "--max-mb, --older-than DAYS, or both"),
        (("prune", "--max-mb", "-1"), "a number from 0 up is wanted, not '-1'"),
        (("prune", "--older-than", "week"), "a number from 0 up is wanted, not 'week'"),
        (("list", "--remove"), "unrecognized arguments: --remove"),
        ((), "required: action"),
    ],
)
def test_cache_says_what_is_wrong(cache, kernels, arguments, said) -> None:
    assert said in refuse("cache", *arguments, DG_JIT_CACHE_DIR=cache)
    assert len(left_in(cache)) == 3


@pytest.mark.parametrize("action", ["list", "size", "verify", "clear"])
def test_cache_without_a_directory_says_so(action) -> None:
    assert "there is no cache directory" in refuse("cache", action, DG_JIT_CACHE_DIR=None, HOME=None)


@pytest.mark.parametrize("action", ["list", "size", "verify", "clear"])
def test_an_empty_cache_is_no_error(cache, action) -> None:
    succeed("cache", action, DG_JIT_CACHE_DIR=cache)


@pytest.mark.skipif(why_no_gpu() is None, reason="this machine has a GPU")
def test_bench_without_a_gpu_says_so() -> None:
    assert "nothing was measured" in refuse("bench", "64", "256", "512")


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_simulate(schedule) -> None:
    printed = succeed("simulate", "33", "136", "272", "--schedule", schedule, "--seed", "3")
    assert "right: differs from the FP64 product" in printed
    assert re.search(r"hazards +none", printed)


def test_simulate_a_blackwell_gpu() -> None:
    printed = succeed("simulate", "33", "136", "272", "--target", "sm_100a")
    assert "on the PTX simulator as sm_100a" in printed
    assert "right: differs from the FP64 product" in printed
    assert re.search(r"hazards +none", printed)


def test_simulate_has_a_shape_of_its_own() -> None:
    assert "M=64 N=256 K=512" in succeed("simulate")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("64", "128", "100"), "K must be a multiple of 16"),
        (("0", "128", "128"), "a whole number from 1 up is wanted, not '0'"),
        (("x", "1", "16"), "'x'"),
    ],
)
def test_simulate_says_what_is_wrong_in_a_line(arguments, said) -> None:
    assert said in refuse("simulate", *arguments)
