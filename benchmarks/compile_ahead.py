"""Puts the kernels of benchmark cases into the disk cache, on all cores, where their first calls find them: one after
the other they take longer to compile than to time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from predict import Candidate, fields_of
from shapes import Sizes, sizes_of

from deep_gemm._targets import HOPPER_TARGET

FORCED = ("swap_ab", "tile_rows", "tile_cols", "cluster_rows", "cluster_cols", "cluster_k", "k_warpgroups")


def kernels_of(
    sizes: Sizes, num_sms: int, chosen: Sequence[Candidate] | None = None, target: str = HOPPER_TARGET
) -> set[tuple[str, str]]:
    """Names and sources of the kernels that calls will want: with these configs, or with what selection picks. A
    mistake here costs only time: the call then compiles what it needs itself."""
    from field_calls import kernel_of

    grouping, fields = fields_of(sizes, num_sms)
    configs = [{}] if chosen is None else [dict(zip(FORCED, each.config, strict=True)) for each in chosen]
    found = [kernel_of(grouping, fields | config, target) for config in configs]
    return {(str(kernel["name"]), str(kernel["text"])) for kernel in found}


def compile_ahead(cases: Iterable[tuple[Sequence, int | None]], on_gpu: bool, index: int = 0, seed: int = 0) -> int:
    """What selection picks on a device for cases with their totals, of kinds that sizes_of knows. Returns how many
    kernels that are. One that does not compile is left to the call, which says more."""
    from deep_gemm._extension import C

    facts = C.device_facts(not on_gpu, index)
    target, output = str(facts["target"]), "cubin" if on_gpu else "ptx"
    known = [sizes for case, total in cases if (sizes := sizes_of(case, total, seed)) is not None]
    kernels = set().union(*(kernels_of(sizes, facts["num_sms"], target=target) for sizes in known))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = [pool.submit(C.jit_compile, name, text, target, output) for name, text in sorted(kernels)]
    for future in futures:
        future.exception()
    return len(kernels)
