"""Fixtures: each device that the tests run on, a setting of it, and an empty kernel cache."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import one_thread  # noqa: F401  # before torch is imported
import pytest
import torch
from cached import compile_once
from devices import EVERY_DEVICE, WITH_FP32_SCALES, arch_of_gpu, simulator_options, why_no_gpu

pytest_plugins = ["kernel_cache", "sampling", "checkpoint_inputs"]  # the last for its fixture


LEFT_OUT = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what cannot run here: where there is no GPU, parameter sets for it are not even made (devices.py)."""
    reason = why_no_gpu()
    if reason is None:
        others = [item for item in items if is_of_other_kernels(item)]
        reason = f"as the GPU runs kernels of {arch_of_gpu()}"
    else:
        others = [item for item in items if item.get_closest_marker("gpu")]
    if others:
        config.stash[LEFT_OUT] = f"deselected, {reason}: {len(others)} tests"
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected, tens of thousands of objects, stays to the end: no search for garbage in it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def is_of_other_kernels(item: pytest.Item) -> bool:
    """Whether it is about other architectures than the GPU's, which may stand in for an older one (DG_TARGET)."""
    archs = item.get_closest_marker("kernels_of")
    return archs is not None and item.get_closest_marker("gpu") is not None and arch_of_gpu() not in archs.args


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if LEFT_OUT in config.stash:
        terminalreporter.write_line(config.stash[LEFT_OUT])


@pytest.fixture(params=EVERY_DEVICE)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Each device in turn. A test that needs fewer says `@pytest.mark.parametrize("device", FEW, indirect=True)`."""
    if request.param == "cuda":
        yield torch.device("cuda", torch.cuda.current_device())
        torch.cuda.synchronize()
        return
    import deep_gemm
    from deep_gemm import simulator

    before = deep_gemm.get_fp32_scales("cpu")
    deep_gemm.set_fp32_scales(request.param.split("-")[0] in WITH_FP32_SCALES, "cpu")
    with simulator.options(**simulator_options(request.param, request.node.name)):
        yield torch.device("cpu")
    deep_gemm.set_fp32_scales(before, "cpu")


SETTINGS = (
    "num_sms",
    "tc_util",
    "pdl",
    "ignore_compile_dims",
    "block_m_multiple_of",
    "block_n_multiple_of",
    "batch_invariant",
    "fast_accumulation",
    "fp32_scales",
    "threads_copy",
)


@pytest.fixture(autouse=True)
def settings_stay() -> Iterator[None]:
    """A setting that outlives its test would decide what the tests after it run, in one order of them."""
    from deep_gemm._extension import C

    places = [(True, 0)] if why_no_gpu() else [(True, 0), (False, 0)]
    of_now = lambda: {(*place, name): C.get_call_setting(*place, name) for place in places for name in SETTINGS}  # noqa: E731
    before, alignment = of_now(), C.get_m_alignment()
    yield
    after = of_now(), C.get_m_alignment()
    if after == (before, alignment):
        return
    for (simulated, index, name), value in before.items():
        C.set_call_setting(simulated, index, name, value)
    C.set_m_alignment(alignment)
    raise AssertionError("a setting outlives its test")


@pytest.fixture
def batch_invariant() -> Iterator[None]:
    """The same bits from all tiles: `set_batch_invariant(True)` on every device."""
    import deep_gemm

    deep_gemm.set_batch_invariant(True)
    yield
    deep_gemm.set_batch_invariant(False)


@pytest.fixture
def cuda() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch) -> str:
    """An empty kernel cache for processes that the test starts (this process has read its settings already)."""
    directory = str(tmp_path / "cache")
    monkeypatch.setitem(os.environ, "DG_JIT_CACHE_DIR", directory)
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where a kernel cache may be made."""
    return tmp_path / "cache directory"


@pytest.fixture
def filled(cache: Path) -> tuple[Path, str]:
    """A cache with one kernel, and its image in hexadecimal."""
    return cache, compile_once(DG_JIT_CACHE_DIR=cache)
