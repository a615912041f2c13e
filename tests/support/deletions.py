"""Which barriers and fences of the device headers the simulator would miss: each is deleted alone, and calls must fail.

    PYTHONPATH=.:tests/support:tests/kernels python tests/support/deletions.py [--target sm_90a] [--only stages.cuh]

Works on copies of the headers. Finds each `__syncwarp`, `__syncthreads` and each fence, wait, arrival and commit by
name, runs the sample calls whose kernels contain it under the three schedules, and prints what noticed its absence: a
hazard by its kind, a wrong number, a kernel that does not compile, or nothing. The exit status is the number of those
that nothing noticed, 100 at most; 101 if a sample call does not run as the headers are, and then nothing is deleted.

The calls of an architecture are cases of the pair table (matrix.py), so that a new architecture has some from the day
it is there; TILES adds tiles that selection takes for large problems only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matrix
import products
import test_bf16_weights
import test_matrix
import test_packed_products
import torch
from candidates import forced_tile
from devices import TARGETS
from inputs import GuardedOutput, random_blocks, random_rows, random_values
from packed_products import KINDS, Tokens, check, weights
from reference import BF16_TOLERANCES, assert_matches, product_nt
from tqdm import tqdm

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._nvrtc import nvrtc_directories

HEADERS = Path(__file__).resolve().parents[2] / "deep_gemm" / "include"
WORDS = "fence|wait|arrive|commit|(?<!a)sync"
# Of ptx/, or what chooses between two of these.
CALL = re.compile(rf"__sync(?:warp|threads)\(|ptx::\w*(?:{WORDS})\w*(?:<[^;()]*>)?\(|(?<![\w.:])(?:commit|arrive)\(")
SCHEDULES = [("eager", 0), ("lazy", 0), ("random", 1), ("random", 2)]
SIZE = (129, 280, 1552)  # more K blocks than stages, and a tail
PACKED_SIZE = (129, 280, 1664)  # whose K groups divide
FEW_SMS = 2  # several tiles to each
MAX_SECONDS = 600
MAX_CALLS = 10  # of those that run a statement
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Tile:
    problem: tuple[int, int, int]
    swapped: bool
    rows: int
    cols: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    k_warpgroups: int = 1
    num_sms: int = FEW_SMS
    fp32_scales: bool = False  # of SM100, multiplied as they are
    packed: str = ""  # weights of that kind
    bf16: bool = False  # both operands, and C is D


TILES = {
    "sm_90a": [
        Tile((1280, 256, 400), False, 128, 128),
        Tile((1280, 256, 400), False, 256, 128),
        Tile((1280, 256, 400), False, 128, 192),
        Tile((1280, 256, 400), False, 192, 128),
        Tile((1280, 256, 400), True, 128, 64),
        Tile((512, 512, 1152), False, 128, 128, (2, 1, 1)),
        Tile((512, 512, 1152), False, 256, 128, (1, 2, 1)),
        Tile((380, 384, 1152), False, 128, 192, (1, 1, 2), num_sms=4),  # pairs share the last tiles
        Tile((64, 512, 2048), True, 64, 64, (1, 1, 4), num_sms=64),
        Tile((64, 512, 2048), True, 64, 64, (1, 1, 1), 2, num_sms=12),
    ],
    "sm_80": [
        Tile((300, 264, 784), False, 128, 128),
        Tile((300, 264, 784), True, 128, 128),
        Tile((40, 130, 1552), True, 64, 32, k_warpgroups=4),
        Tile((40, 130, 1552), True, 32, 16, k_warpgroups=4),  # with a warp that copies
        Tile((40, 130, 1552), True, 64, 64, k_warpgroups=2, bf16=True),
        Tile(SIZE, False, 64, 64, bf16=True),  # lanes write what others read
    ],
    "sm_100a": [
        Tile((300, 264, 784), False, 128, 128, (2, 1, 1)),
        Tile((300, 264, 784), True, 128, 32, (2, 1, 1)),
        Tile((40, 130, 1552), True, 128, 64, (1, 1, 2), num_sms=8),
        Tile((300, 264, 784), False, 128, 128, (2, 1, 1), fp32_scales=True),
        Tile((40, 130, 1552), True, 128, 64, (1, 1, 2), num_sms=8, fp32_scales=True),
        Tile((40, 130, 1664), True, 128, 64, (1, 1, 2), num_sms=8, packed="int8"),
        Tile((100, 300, 1664), True, 128, 128, packed="fp8"),
        Tile((100, 300, 1664), True, 128, 128, (2, 1, 1), packed="fp8"),
        Tile((40, 300, 1664), True, 128, 64, (2, 1, 1), packed="int8"),
    ],
}

SampleCall = Callable[[], None]


@dataclass(frozen=True)
class Deletion:
    file: str
    first: int  # lines
    last: int
    start: int  # of the statement in the text
    end: int
    text: str


def deletions_of(path: Path) -> Iterator[Deletion]:
    text = path.read_text()
    for match in CALL.finditer(text):
        line_start = text.rfind("\n", 0, match.start()) + 1
        if "//" in text[line_start : match.start()]:
            continue
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if text[end] != ";":
            continue  # a part of an expression
        lines = (text[: match.start()].count("\n") + 1, text[:end].count("\n") + 1)
        statement = " ".join(text[match.start() : end].split())
        yield Deletion(str(path.relative_to(HEADERS)), *lines, match.start(), end, statement)


# Of SM100, where a role of its own converts packed weights: kinds of weights, each a dense product.
PACKED = ("int8", "int8-groups-of-32", "fp8", "fp8-zeros", "mxfp4-near-exponents")
PACKED_BESIDE_BF16 = ("int4-zeros", "fp4-channels", "nvfp4")


def run_tile(tile: Tile) -> None:
    if tile.packed:
        return run_packed_tile(tile)
    if tile.bf16:
        return run_bf16_tile(tile)
    deep_gemm.set_fp32_scales(tile.fp32_scales, CPU)  # these run one after the other
    m, n, k = tile.problem
    a, b = random_rows((m, k), CPU, 0), random_blocks((n, k), CPU, 1)
    out = GuardedOutput((m, n), torch.bfloat16, CPU)
    some = simulator.options(num_sms=tile.num_sms)
    with some, forced_tile(CPU, tile.problem, tile.swapped, tile.rows, tile.cols, tile.cluster, tile.k_warpgroups):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b), str(tile))


def run_packed_tile(tile: Tile) -> None:
    kind, generator = KINDS[tile.packed], torch.Generator().manual_seed(0)
    m, n, k = tile.problem
    a, (w, exact) = Tokens(kind, (m, k), generator), weights(kind, (n, k), generator)
    out = GuardedOutput((m, n), torch.float32, CPU)
    some = simulator.options(num_sms=tile.num_sms)
    with some, forced_tile(CPU, tile.problem, tile.swapped, tile.rows, tile.cols, tile.cluster, tile.k_warpgroups):
        kind.function("{}_gemm_nt")(a.to(CPU), w, out.tensor)
    out.check()
    check(out.tensor, a.exact, exact, kind.activations)


def run_bf16_tile(tile: Tile) -> None:
    m, n, k = tile.problem
    a, b = (random_values((rows, k), CPU, seed).bfloat16() for rows, seed in ((m, 0), (n, 1)))
    d = random_values((m, n), CPU, 2).bfloat16()
    expected = product_nt(a, b, d.clone())
    some = simulator.options(num_sms=tile.num_sms)
    with some, forced_tile(CPU, tile.problem, tile.swapped, tile.rows, tile.cols, tile.cluster, tile.k_warpgroups):
        deep_gemm.bf16_gemm_nt(a, b, d, d)
    assert_matches(d, expected, str(tile), BF16_TOLERANCES)


def run_product(name: str) -> None:
    assert products.make(name)().isfinite().all(), f"{name}: D is not finite"


def run_layout(packed: bool) -> None:
    scales = torch.exp2(torch.randint(-8, 8, (300, 20), generator=torch.Generator().manual_seed(0)).float())
    if packed:
        words = deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(scales)
        exponents = torch.stack([words >> 8 * byte & 255 for byte in range(4)], dim=-1).flatten(-2)
        assert torch.equal(torch.exp2(exponents.float() - 127), scales), "scales are packed wrong"
    else:
        assert torch.equal(deep_gemm.get_mn_major_tma_aligned_tensor(scales), scales), "scales are moved wrong"


def packed_calls() -> dict[str, SampleCall]:
    fp8, bf16 = test_packed_products, test_bf16_weights
    arguments = (torch.bfloat16, torch.float32)
    calls = {name: partial(fp8.test_dense, CPU, KINDS[name], "nothing", PACKED_SIZE, torch.float32) for name in PACKED}
    calls |= {
        f"bf16 {name}": partial(bf16.test_dense, CPU, bf16.KINDS[name], "nothing", PACKED_SIZE, *arguments)
        for name in PACKED_BESIDE_BF16
    }
    calls["fp8 masked"] = partial(fp8.test_masked, CPU, KINDS["fp8"], False, 136, 272, torch.bfloat16)
    calls["int8 contiguous"] = partial(fp8.test_contiguous, CPU, KINDS["int8"], True, False, 136, 272, torch.bfloat16)
    return calls


def sample_calls(target: str) -> dict[str, SampleCall]:
    calls: dict[str, SampleCall] = {}
    of_kind: set[tuple] = set()
    for case in matrix.cases():
        kind = (case.pair, case.grouping, case.added == "nothing")
        if TARGETS[case.pair.arch] == target and kind not in of_kind:
            of_kind.add(kind)
            calls[str(case)] = partial(test_matrix.run_case, case, CPU, SIZE)
    for tile in TILES.get(target, []):
        calls[str(tile)] = partial(run_tile, tile)
    if target == "sm_100a":
        calls |= packed_calls()
    if target == "sm_90a":  # what is done before a product does not depend on the architecture
        calls |= {name: partial(run_product, name) for name in products.PRODUCTS}
        calls |= {"scales": partial(run_layout, False), "packed scales": partial(run_layout, True)}
    return calls


def name_of(error: BaseException) -> str:
    kind = re.match(r"simulator: kernel '\w+': ([a-z -]+):", str(error))
    if kind:
        return kind[1]
    if isinstance(error, AssertionError):
        return "wrong number"
    return f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"


def use_headers(package: Path, cache: Path) -> None:
    """Of a forked process that has not used the runtime: compile with the headers of this package directory."""
    os.environ.update(DG_JIT_CACHE_DIR=str(cache))
    C.initialize(str(package), nvrtc_directories())
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  calls say what they are
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_SECONDS)


def stop(*_: object) -> None:
    raise TimeoutError("the calls do not end")


def lines_of(ptx: str) -> set[tuple[str, int]]:
    """Source lines of the headers that the PTX has instructions of, inlined ones too."""
    files = {number: name for number, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx, re.M)}
    found = re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", ptx)
    return {
        (name.rsplit("/include/", 1)[1], int(line))
        for number, line in found
        if "/include/" in (name := files.get(number, ""))
    }


def covered(task: tuple[str, str]) -> tuple[str, set[tuple[str, int]], str]:
    """Runs one call with the headers as they are: the lines of its kernels, and what went wrong."""
    target, name = task
    with tempfile.TemporaryDirectory() as folder:
        use_headers(HEADERS.parent, Path(folder))
        problem = ""
        try:
            with simulator.options(target=target, num_sms=FEW_SMS, threads=1):
                sample_calls(target)[name]()
        except Exception as error:  # whatever it is, the call is of no use
            problem = f"{name_of(error)} {error}"
        lines = set().union(*(lines_of(path.read_text()) for path in Path(folder).rglob("kernel.ptx")), set())
    return name, lines, problem


def noticed(task: tuple[str, Deletion, list[str]]) -> tuple[Deletion, str]:
    """What notices the deletion first."""
    target, deletion, names = task
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "package"
        shutil.copytree(HEADERS, package / "include")
        header = package / "include" / deletion.file
        text = header.read_text()
        header.write_text(text[: deletion.start] + "(void)0" + text[deletion.end :])
        use_headers(package, Path(folder) / "cache")
        calls = sample_calls(target)
        try:
            for name in names:
                for schedule, seed in SCHEDULES:
                    with simulator.options(target=target, num_sms=FEW_SMS, threads=1, schedule=schedule, seed=seed):
                        try:
                            calls[name]()
                        except Exception as error:  # of any kind: it is noticed
                            return deletion, f"{name_of(error)} ({schedule}, {name})"
        except TimeoutError:
            return deletion, "does not end"
    return deletion, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="sm_90a", choices=sorted(TARGETS.values()))
    parser.add_argument("--only", default="", help="a part of the header's path")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    target, names = arguments.target, list(sample_calls(arguments.target))
    deletions = [
        deletion
        for path in sorted(HEADERS.rglob("*.cuh"))
        if path.parent.name != "ptx" and arguments.only in str(path)
        for deletion in deletions_of(path)
    ]
    with multiprocessing.get_context("fork").Pool(arguments.jobs, maxtasksperchild=1) as pool:
        ran = list(tqdm(pool.imap_unordered(covered, [(target, name) for name in names]), total=len(names)))
        broken = [f"cannot run: {name}: {problem}" for name, _, problem in ran if problem]
        if broken:
            print("\n".join(broken))
            return 101
        lines = {name: found for name, found, _ in ran}
        tasks = []
        for deletion in deletions:
            its = {(deletion.file, line) for line in range(deletion.first, deletion.last + 1)}
            users = [name for name in names if its & lines.get(name, set())]
            if users:
                tasks.append((target, deletion, users[:: -(-len(users) // MAX_CALLS)]))
        results = list(tqdm(pool.imap_unordered(noticed, tasks, chunksize=1), total=len(tasks)))
    for deletion, by in sorted(results, key=lambda result: (bool(result[1]), result[0].file, result[0].first)):
        print(f"{by or 'NOT NOTICED'}: {deletion.file}:{deletion.first}: {deletion.text}")
    tried = {deletion for deletion, _ in results}
    for deletion in deletions:
        if deletion not in tried:
            print(f"in no kernel of the calls: {deletion.file}:{deletion.first}: {deletion.text}")
    kinds = Counter(by.split(" (")[0] for _, by in results if by)
    unnoticed = sum(not by for _, by in results)
    print(f"{len(results)} deletions, {unnoticed} not noticed; by kind: {dict(kinds.most_common())}")
    return min(unnoticed, 100)


if __name__ == "__main__":
    sys.exit(main())
