"""The micro-benchmarks end and count their bytes right: small ones on the simulator, which finds hangs and races."""

from __future__ import annotations

import importlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deep_gemm._targets import BLACKWELL_TARGET, HOPPER_TARGET

torch = pytest.importorskip("torch")

from deep_gemm import simulator  # noqa: E402

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = ["grid", "ingress", "decode_chain", "k_block", "beside_wgmma", "logits_finish"]


@pytest.fixture
def micro(monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "micro"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_bare_launches_are_built(micro, tmp_path) -> None:
    for path in micro("warm_calls").build_launch(tmp_path, HOPPER_TARGET):
        assert path.stat().st_size > 0


def test_ingress(micro) -> None:
    ingress = micro("ingress")
    for variant in (
        ingress.Variant(16384, 2),
        ingress.Variant(16384, 4, cluster=2, sharers=8),
        ingress.Variant(8192, 3, tensor=False, from_memory=True),
    ):
        row = ingress.measure(ingress.smaller(variant), torch.device("cpu"))
        assert row["bytes_per_cycle"] > 0


def test_decode_chain(micro) -> None:
    chain = micro("decode_chain")
    for variant in (chain.Variant(16), chain.Variant(16, 2, striped=True, overlap=True, copy=True)):
        assert chain.measure(replace(variant, blocks=24), torch.device("cpu"))["cycles"] > 0


def test_beside_wgmma(micro) -> None:
    beside = micro("beside_wgmma")
    row = beside.measure(beside.Variant(1, rounds=16), torch.device("cpu"))
    assert row["beside"] > 0
    assert row["wgmma_cycles"] > 0


def test_k_block_and_grid(micro) -> None:
    k_block, grid = micro("k_block"), micro("grid")
    pairs = k_block.Variant(row_tiles=2, copy=2, cluster=2, blocks=9)
    assert k_block.measure(pairs, torch.device("cpu"))["cycles"] > 0
    assert grid.measure(grid.Variant(cluster=2, sync=True), torch.device("cpu"))["clusters_that_fit"] > 0


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_variant_compiles_to_what_it_is_to_measure(micro, name) -> None:
    """wgmma that ptxas runs one by one, or spills within the loop, would measure something else."""
    from deep_gemm import jit
    from deep_gemm._extension import C

    module = micro(name)
    variants = getattr(module, "VARIANTS", None) or module.variants()
    texts = sorted({module.source(variant) for variant in variants})
    results = jit.compile_many([(name, text) for text in texts], HOPPER_TARGET, progress=False)
    assert [result.error for result in results if result.error] == []
    keys = {str(C.jit_cache_key(name, text, HOPPER_TARGET, "cubin")) for text in texts}
    entries = [entry for entry in jit.list_cache() if entry.key in keys]
    assert len(entries) == len(texts)
    assert [entry.path for entry in entries if entry.hidden_waits] == []
    assert [entry.path for entry in entries if entry.spill_bytes > 16] == []  # k_block: 16


def test_add(micro) -> None:
    add = micro("add")
    for variant in (
        add.Variant("add", ahead=2, every=2),
        add.Variant("fetch", tile_cols=64, evict_first=True),
        add.Variant("threads_reduce"),
    ):
        add.measure(add.smaller(variant), torch.device("cpu"))  # compares D with what must come out


def test_add_stores_what_it_fetched(micro) -> None:
    """D is then as it was, which says nothing."""
    add = micro("add")
    add.measure(add.smaller(add.Variant("fetch")), torch.device("cpu"))
    report = simulator.last_report()
    assert report is not None
    counts = report.statistics["instructions"]
    stored = [count for name, count in counts.items() if name.startswith("cp.async.bulk.tensor.3d.global")]
    fetched = [count for name, count in counts.items() if name.startswith("cp.async.bulk.tensor.3d.shared")]
    assert stored == fetched == [1024 * 512 * 4 // 2048]  # boxes of 2 KB


def test_tensor_rates(micro) -> None:
    """Every kind, and a pair of CTAs; the simulator would report a hazard."""
    rates = micro("tensor_rates")
    variants = [rates.Variant(kind, cols=32, blocks=3) for kind in rates.KINDS]
    with simulator.options(target=BLACKWELL_TARGET.replace("f", "a")):
        for variant in [*variants, rates.Variant("mxf8f6f4 e4m3", cols=64, ctas=2, blocks=3)]:
            assert rates.measure(variant, torch.device("cpu"))["cycles_per_product"] > 0


def test_mma_rates(micro) -> None:
    """Every kind, of registers and fed; the simulator would report a hazard. A program for a target has its kinds."""
    rates = micro("mma_rates")
    with simulator.options(target="sm_120a"):
        for kind in rates.KINDS:
            for fed in (False, True):
                row = rates.measure(rates.Variant(kind, 16, 16, fed, rounds=1), torch.device("cpu"))
                assert row["cycles_per_product"] > 0
    kinds = {target: {v.kind for v in rates.variants() if rates.runs_on(v, target)} for target in ("sm_80", "sm_89")}
    assert kinds == {"sm_80": {"bf16", "int8"}, "sm_89": {"bf16", "int8", "e4m3"}}


def test_tensor_moves(micro) -> None:
    moves = micro("tensor_moves")
    with simulator.options(target=BLACKWELL_TARGET):
        for variant in (moves.Variant("read and promote", 8, rounds=1), moves.Variant("write", 4, rounds=1)):
            assert moves.measure(variant, torch.device("cpu"))["cycles_per_column"] > 0
