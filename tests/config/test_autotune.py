"""DG_AUTOTUNE: what is measured, what is remembered where, and that measuring leaves no trace in a result.

The simulator has no clock that says anything. There a function of the test's stands for one (`C.set_autotune`), so that
everything but the clock is tested without a GPU.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from candidates import candidates
from fresh import check

import deep_gemm

# A small product in a fresh process; `asked` lists what the clock was asked for, which counts up or down.
PRODUCT = """
import deep_gemm
asked = []
def clock(config):
    asked.append(config)
    return float({time})
C.set_autotune(True, 0, jit.settings()["autotune"], clock)
def product(m=64, n=64, k=256, dtype=torch.bfloat16):
    a = torch.ones((m, k)).to(torch.float8_e4m3fn), torch.ones((m, (k + 127) // 128))
    b = torch.ones((n, k)).to(torch.float8_e4m3fn), torch.ones(((n + 127) // 128, (k + 127) // 128))
    d = torch.full((m, n), float("nan"), dtype=dtype)
    deep_gemm.fp8_gemm_nt(a, b, d)
    assert (d == k).all()
"""
SLOWER, FASTER = PRODUCT.format(time="len(asked)"), PRODUCT.format(time="-len(asked) + 100")


def tuned(cache: Path) -> list[Path]:
    return sorted((cache / "tuned").glob("*.json"))


def asked_for(cache: Path, code: str, calls: str = "product()", **environment) -> list[str]:
    """Configs measured by a new process."""
    environment = {"DG_AUTOTUNE": 1, "DG_JIT_CACHE_DIR": cache, **environment}
    return check(f"{code}\n{calls}\nresult = asked", **environment).result


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A cache that has the small product's kernels, and no winner."""
    cache = tmp_path_factory.mktemp("compiled")
    asked_for(cache, SLOWER)
    shutil.rmtree(cache / "tuned")
    return cache


@pytest.fixture
def cache(compiled: Path, cache: Path) -> Path:
    return Path(shutil.copytree(compiled, cache))


def tile(candidate) -> str:
    frame = "swapped" if candidate.swapped else "straight"
    cluster = "x".join(map(str, candidate.cluster_shape))
    return f"{frame} {candidate.rows}x{candidate.cols} cluster {cluster} k_warpgroups {candidate.k_warpgroups}"


def shortlist(found) -> list[str]:
    legal = [candidate for candidate in found if candidate.rejection is None]
    return [tile(candidate) for candidate in legal if candidate.cost <= 1.35 * legal[0].cost][:8]


def test_off_by_default_and_on_the_simulator(cache):
    assert check("result = jit.settings()['autotune']").result is False
    assert asked_for(cache, FASTER, DG_AUTOTUNE=None) == []
    # With no clock the simulator takes the model's pick, and remembers it as if nothing had been asked.
    code = SLOWER + "C.set_autotune(True, 0, True, None)"
    assert asked_for(cache, code, "product(); product()") == []
    assert tuned(cache) == []


def test_shortlist(cache):
    sms = 4  # the simulator's default
    asked = asked_for(cache, SLOWER)
    assert asked == shortlist(candidates(64, 64, 256, sms))
    assert 2 <= len(asked) <= 8
    assert len(set(asked)) == len(asked)


def test_each_problem_is_measured_once(cache):
    asked = asked_for(cache, SLOWER, "product(); product(); product(m=65); product()")
    assert asked == shortlist(candidates(64, 64, 256, 4)) + shortlist(candidates(65, 64, 256, 4))
    assert len(tuned(cache)) == 2


@pytest.mark.parametrize(("code", "index"), [(SLOWER, 0), (FASTER, -1)])
def test_winner_is_kept_and_used(cache, code, index):
    first = check(f"{code}\nproduct()", DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=cache, DG_PRINT_CONFIGS=1)
    (path,) = tuned(cache)
    facts = json.loads(path.read_text())
    found = shortlist(candidates(64, 64, 256, 4))
    assert f"Best: {found[index]}\n" in first.stderr
    assert [text.split(" us ")[0].rsplit(" ", 1)[0] for text in facts["measured"].split("; ")] == found
    assert "PTX simulator" in facts["device"]
    assert "M=64 N=64 K=256" in facts["problem"]
    # A second process compiles nothing, measures nothing, and gets the same kernel.
    second = check(
        f"{SLOWER}\nproduct()\nresult = [asked, jit.statistics()['compiled']]",
        DG_AUTOTUNE=1,
        DG_JIT_CACHE_DIR=cache,
        DG_PRINT_CONFIGS=1,
    )
    assert second.result == [[], 0]
    rows, cols = (int(part) for part in found[index].split()[1].split("x"))
    assert f".tile = {{.rows = {rows}, .cols = {cols}, .k = 128}}" in second.stderr
    # A process that does not ask for it does as if the file were not there.
    off = check(f"{SLOWER}\nproduct()", DG_JIT_CACHE_DIR=cache, DG_PRINT_CONFIGS=1)
    rows, cols = (int(part) for part in found[0].split()[1].split("x"))
    assert f".tile = {{.rows = {rows}, .cols = {cols}, .k = 128}}" in off.stderr


def truncate(path: Path) -> None:
    path.write_text(path.read_text()[:60])


def empty(path: Path) -> None:
    path.write_text("")


def nest(path: Path) -> None:
    path.write_text("[" * 1_000_000)


def other_type(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"winner": 1}, indent=2))


def other_key(path: Path) -> None:
    facts = json.loads(path.read_text()) | {"key": "0" * 32}
    path.write_text(json.dumps(facts, indent=2))


def unknown_kernel(path: Path) -> None:
    facts = json.loads(path.read_text()) | {"winner": "f" * 32}
    path.write_text(json.dumps(facts, indent=2))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("damage", [truncate, empty, nest, other_type, other_key, unknown_kernel])
def test_damaged_and_foreign_files(cache, damage):
    everything = asked_for(cache, FASTER)
    (path,) = tuned(cache)
    before = path.read_text()
    damage(path)
    outcome = check(FASTER + "\nproduct()\nresult = asked", DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=cache)
    assert outcome.result == everything
    assert outcome.stderr == f"deep_gemm: {path} is damaged or belongs to something else; measuring again\n"
    assert path.read_text() == before
    assert asked_for(cache, FASTER) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "environment",
    [
        {"DG_SIM_NUM_SMS": 3},
        pytest.param({"DG_JIT_USE_NVRTC": 0}, marks=pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")),
    ],
    ids=str,
)
def test_another_device_or_compiler_measures_again(cache, environment):
    asked_for(cache, SLOWER)
    assert asked_for(cache, SLOWER, **environment)
    assert len(tuned(cache)) == 2
    assert asked_for(cache, SLOWER, **environment) == []


def test_other_headers_measure_again(cache, tmp_path):
    """A copy of the package whose headers differ by a comment."""
    asked_for(cache, SLOWER)
    package = Path(deep_gemm.__file__).parent
    copy = tmp_path / "package"
    copy.mkdir()
    for path in (package / "include").rglob("*.cuh"):
        target = copy / "include" / path.relative_to(package / "include")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    move = f"from deep_gemm._nvrtc import nvrtc_directories\nC.initialize({str(copy)!r}, nvrtc_directories())\n"
    assert asked_for(cache, move + SLOWER) == []  # an equal copy: no path is in a key
    with (copy / "include" / "deep_gemm" / "types.cuh").open("a") as file:
        file.write("// changed\n")
    assert asked_for(cache, move + SLOWER)
    assert len(tuned(cache)) == 2


def sums_in_order(config: str) -> bool:
    """No CTAs share a tile's K blocks, nor do warpgroups."""
    return re.search(r"cluster \d+x\d+x1 k_warpgroups 1$", config) is not None


def test_settings_are_part_of_the_problem(cache):
    calls = """
product(k=2048)
loose = list(asked)
deep_gemm.set_batch_invariant(True, "cpu")
product(k=2048)
asked = [loose, asked[len(loose):]]
"""
    loose, invariant = asked_for(cache, SLOWER, calls)
    assert not all(map(sums_in_order, loose))
    assert invariant
    assert all(map(sums_in_order, invariant))


def test_nowhere_to_keep_winners(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    outcome = check(
        SLOWER + "\nproduct(); product(); product(m=65)\nresult = asked", DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=blocked
    )
    assert outcome.result == shortlist(candidates(64, 64, 256, 4)) + shortlist(candidates(65, 64, 256, 4))
    assert outcome.stderr.count("what DG_AUTOTUNE measures is kept in memory only") == 1


def test_clear_cache_forgets_winners(cache):
    asked_for(cache, SLOWER)
    check("jit.clear_cache()", DG_JIT_CACHE_DIR=cache)
    assert tuned(cache) == []


# On a GPU, with its own clock.

SPEEDS = """
a = torch.randn((64, 4096), device="cuda").to(torch.float8_e4m3fn), torch.rand((64, 32), device="cuda")
b = torch.randn((4096, 4096), device="cuda").to(torch.float8_e4m3fn), torch.rand((32, 32), device="cuda")
d = torch.zeros((64, 4096), dtype=torch.bfloat16, device="cuda")
import deep_gemm
"""


@pytest.mark.gpu
def test_times_are_plausible(cache):
    outcome = check(
        SPEEDS + "deep_gemm.fp8_gemm_nt(a, b, d)\ntorch.cuda.synchronize()", DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=cache
    )
    assert outcome.stderr == ""
    (path,) = tuned(cache)
    facts = json.loads(path.read_text())
    times = [float(text.split(" us ")[0].rsplit(" ", 1)[1]) for text in facts["measured"].split("; ")]
    assert 2 <= len(times) <= 8
    # 17 MB from a cold L2, between ten times the bandwidth there is and a hundredth of it.
    assert all(0.4 < time < 400 for time in times)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_nothing_is_measured_during_a_capture(cache, mode):
    code = f"""
import pathlib
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, capture_error_mode={mode!r}):
    deep_gemm.fp8_gemm_nt(a, b, d)
in_capture = len(list(pathlib.Path({str(cache)!r}).glob("tuned/*.json")))
graph.replay()
torch.cuda.synchronize()
captured = d.clone()
deep_gemm.fp8_gemm_nt(a, b, d)
torch.cuda.synchronize()
result = [in_capture, bool(captured.any()), ((captured - d).abs().max() / d.abs().max()).item()]
"""
    in_capture, anything, difference = check(SPEEDS + code, DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=cache).result
    assert in_capture == 0
    assert anything
    assert difference < 0.01
    assert len(tuned(cache)) == 1  # by the call after the capture


@pytest.mark.gpu
def test_no_memory_for_scratch(cache):
    """The call then runs as without DG_AUTOTUNE."""
    code = """
import pathlib
deep_gemm.fp8_gemm_nt((a[0][:1], a[1][:1]), b, d[:1])  # loads the driver and what torch needs
torch.cuda.synchronize()
torch.cuda.empty_cache()
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (8 << 20)) / total)
deep_gemm.fp8_gemm_nt(a, b, d)
torch.cuda.synchronize()
result = bool(d.any())
"""
    assert check(SPEEDS + code, DG_AUTOTUNE=1, DG_JIT_CACHE_DIR=cache).result
    assert len(tuned(cache)) == 1
