"""A kernel that keeps registers in memory, as the driver says when it is loaded: it is reported, and a product takes
the next config instead. On a stand-in for the driver, and on a GPU with a kernel that does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import fresh
import pytest
from fake_driver import PRODUCTS, driver_lines
from field_calls import kernel_of

from deep_gemm._targets import HOPPER_SMS

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
REPORT = "bytes of each thread in local memory"
STARTS = ("here ", "entry ", "launch ", "deep_gemm: ")
SIZES = {"m": 512, "n": 4096, "k": 1024}


def said(code: str, **environment: str) -> list[str]:
    return driver_lines(PRODUCTS + code, STARTS, FAKE_CAPABILITIES="9.0", **environment)


def products(lines: list[str]) -> list[str]:
    """Names of the products' kernels that were loaded."""
    return [line.removeprefix("entry ") for line in lines if line.startswith("entry ") and "_gemm_" in line]


def launched(lines: list[str]) -> str:
    """The last launch, by its grid, blocks and memory."""
    return [line.split(" params ")[0].partition("grid ")[2] for line in lines if line.startswith("launch ")][-1]


@pytest.fixture(scope="module")
def plain() -> list[str]:
    lines = said("product()")
    assert not any(REPORT in line for line in lines)
    assert len(products(lines)) == 1
    return lines


@needs_compiler
def test_a_call_takes_the_cheapest_config_that_does_not_spill(plain) -> None:
    (pick,) = products(plain)
    lines = said("product()\nproduct()", FAKE_SPILLS=pick)
    assert products(lines)[0] == pick
    assert len(products(lines)) == 2  # the next one does not
    assert launched(lines) != launched(plain)
    (report,) = (line for line in lines if REPORT in line)  # once, for two calls
    assert f"{pick} for sm_90a keeps 24 {REPORT}" in report
    assert re.search(r"\(nv(rtc|cc) \d+\.\d+ .* please report this, GemmConfig\{$", report)


@needs_compiler
def test_the_pick_stays_where_all_spill(plain) -> None:
    lines = said("product()", FAKE_SPILLS="_gemm_")
    assert len(products(lines)) > 2
    assert launched(lines) == launched(plain)


@needs_compiler
def test_the_pick_stays_where_nothing_else_may_be_compiled(plain, tmp_path) -> None:
    """Recording beforehand knew it only."""
    said("product()", DG_JIT_CACHE_DIR=str(tmp_path))
    (pick,) = products(plain)
    lines = said("product()", FAKE_SPILLS=pick, DG_JIT_CACHE_DIR=str(tmp_path), DG_JIT_REFUSE="1")
    assert products(lines) == [pick]
    assert launched(lines) == launched(plain)
    assert any(REPORT in line for line in lines)


@needs_compiler
def test_a_forced_config_stays(plain) -> None:
    (pick,) = products(plain)
    swapped, rows, cols = tile_of(pick)
    force = f"""
from deep_gemm._extension import C
C.force_config(False, 0, 64, 128, 256, {swapped}, {rows}, {cols}, 1, 1, 1, 1, 0)
product()
"""
    assert len(products(said(force, FAKE_SPILLS="_gemm_"))) == 1


def tile_of(name: str) -> tuple[int, int, int]:
    swapped, rows, cols = re.search(r"dense_(swapped_)?(\d+)x(\d+)", name).groups()
    return int(swapped is not None), int(rows), int(cols)


def planted(folder: Path, rows: int, cols: int) -> str:
    """Code after which Hopper's kernels of this tile keep an array in local memory."""
    line = f"if constexpr (c.tile.rows == {rows} && c.tile.cols == {cols}) {{ volatile int32_t kept[8]; "
    line += "kept[threadIdx.x % 8] = warpgroup; }"
    place = "    Tiles tiles(params, smem.groups());\\n"
    return f"""{fresh.copied_package(folder)}
from pathlib import Path
header = Path({str(folder / "include/deep_gemm/kernels/gemm_sm90.cuh")!r})
text = header.read_text()
assert text.count("{place}") == 1
header.write_text(text.replace("{place}", "    {line}\\n{place}"))
"""


def test_a_planted_array_is_local_memory(tmp_path) -> None:
    """To the compiler, for the test below."""
    kernel = kernel_of("dense", {**SIZES, "num_sms": HOPPER_SMS})
    name, text = str(kernel["name"]), str(kernel["text"])
    _, rows, cols = tile_of(name)
    compile_it = f"C.jit_compile({name!r}, {text!r}, HOPPER_TARGET, 'cubin')"
    done = fresh.run(planted(tmp_path, rows, cols) + compile_it, DG_JIT_PTXAS_CHECK=1, DG_JIT_CACHE_DIR="", HOME=None)
    assert re.search(f"kernel {name} spills: .* 32 bytes of stack", done.stderr)


@pytest.mark.gpu
def test_a_gpu_tells_and_takes_another_kernel(tmp_path) -> None:
    code = f"""
import deep_gemm
m, n, k = {SIZES["m"]}, {SIZES["n"]}, {SIZES["k"]}
a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
d = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
sfa, sfb = torch.ones(k // 128, m, device="cuda").T, torch.ones(n // 128, k // 128, device="cuda")
deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
wanted = a.double() @ b.double().T
result = float((d.double() - wanted).abs().max() / wanted.abs().max()), deep_gemm.get_target("cuda:0")
"""
    environment = {"DG_PRINT_CONFIGS": 1, "DG_JIT_CACHE_DIR": str(tmp_path / "cache")}
    plain = fresh.check(code, **environment)
    if plain.result[1] != "sm_90a":
        pytest.skip("the array is planted in Hopper's kernel")
    assert REPORT not in plain.stderr
    rows, cols = config_tile(plain.stderr)
    done = fresh.check(planted(tmp_path, rows, cols) + code, **environment)
    assert re.search(rf"_{rows}x{cols}\S* for sm_90a keeps (\d+) {REPORT}", done.stderr)
    assert config_tile(done.stderr) != (rows, cols)
    assert max(plain.result[0], done.result[0]) < 0.01


def config_tile(printed: str) -> tuple[int, int]:
    """As DG_PRINT_CONFIGS says it."""
    *_, last = re.finditer(r" CTAs, estimated .*?\.tile = \{\.rows = (\d+), \.cols = (\d+)", printed, re.DOTALL)
    return int(last[1]), int(last[2])
