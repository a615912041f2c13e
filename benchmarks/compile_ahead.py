"""Puts the kernels of benchmark cases into the disk cache, on all cores, where their first calls find them: one after
the other they take longer to compile than to time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from predict import fields_of
from shapes import sizes_of


def kernels_of(cases: Iterable[tuple[Sequence, int | None]], num_sms: int, seed: int = 0) -> set[tuple[str, str]]:
    """Names and sources of what selection picks for cases with their totals; of kinds that sizes_of knows."""
    from deep_gemm._extension import C

    known = [sizes for case, total in cases if (sizes := sizes_of(case, total, seed)) is not None]
    found = [C.problem_kernel(*fields_of(sizes, num_sms)) for sizes in known]
    return {(str(kernel["name"]), str(kernel["text"])) for kernel in found}


def compile_ahead(cases: Iterable[tuple[Sequence, int | None]], on_gpu: bool, index: int = 0, seed: int = 0) -> int:
    """For a device. Returns how many kernels there are. One that does not compile is left to the call, which says
    more."""
    from deep_gemm._extension import C

    facts = C.device_facts(not on_gpu, index)
    target, output = str(facts["target"]), "cubin" if on_gpu else "ptx"
    kernels = sorted(kernels_of(cases, facts["num_sms"], seed))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        wait = [pool.submit(C.jit_compile, name, text, target, output) for name, text in kernels]
    for future in wait:
        future.exception()
    return len(kernels)
