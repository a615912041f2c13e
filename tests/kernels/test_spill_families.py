"""Tiles that are refused because ptxas would spill their kernels (csrc/config/ARCH/spills.hpp): of each family a kernel
still does, by one of the compilers at hand.

Those are NVRTC, an nvcc on the PATH, and any other NVRTC that DG_TEST_NVRTC names (files, by colons).
tests/data/spill_witnesses.json has a kernel of each family. Where no compiler spills that any more, others are drawn;
where none of them spills, the test asks to remove the family. A family with a `compiler` is spilled by that one only,
and judged where DG_TEST_NVRTC names one. After a change of kernels or compilers, this looks for
witnesses anew where they do not spill, and says which families have none:

    PYTHONPATH=.:tests/support python3 tests/kernels/test_spill_families.py
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from compiled import Compiled, compile_all
from field_calls import spilling_kernel_of
from sampling import SEED
from spill_problems import families, kernels_of_family

WITNESSES = Path(__file__).resolve().parents[1] / "data" / "spill_witnesses.json"
DRAWN = 12  # kernels of a family whose witness does not spill

Compile = Callable[..., list[Compiled]]


def compilers() -> dict[str, dict[str, int | str]]:
    found: dict[str, dict[str, int | str]] = {"NVRTC": {"DG_JIT_USE_NVRTC": 1}}
    if shutil.which("nvcc"):
        found["nvcc"] = {"DG_JIT_USE_NVRTC": 0}
    for library in filter(None, os.environ.get("DG_TEST_NVRTC", "").split(":")):
        found[library] = {"DG_JIT_USE_NVRTC": 1, "DG_JIT_NVRTC_LIBRARY": library}
    return found


def is_judged(witness: dict) -> bool:
    return "compiler" not in witness or bool(os.environ.get("DG_TEST_NVRTC"))


def still_spills(witness: dict, compile_texts: Compile) -> bool:
    _, text = spilling_kernel_of(witness["grouping"], witness["fields"], witness["target"])
    return spiller(text, witness["target"], compile_texts) is not None


def witnesses() -> dict[tuple[str, str], dict]:
    return {(each["arch"], each["family"]): each for each in json.loads(WITNESSES.read_text())}


def spiller(text: str, target: str, compile_texts: Compile) -> str | None:
    """The first compiler that spills it."""
    for name, environment in compilers().items():
        (found,) = compile_texts([text], target, **environment)
        assert found.error is None, found.error
        if found.spill_bytes or found.stack_bytes:
            return name
    return None


def fault_of(arch: str, family: str, seed: int, compile_texts: Compile = compile_all) -> str | None:
    """What to do about a family; None while its witness, or a drawn kernel, spills."""
    known = witnesses()[arch, family]
    named, _ = spilling_kernel_of(known["grouping"], known["fields"], known["target"])
    if named != family:
        return f"{WITNESSES.name} has a kernel for {arch}'s {family!r} that is refused for {named!r}: run {__file__}"
    if still_spills(known, compile_texts):
        return None
    others = list(islice(kernels_of_family(arch, family, seed), DRAWN))
    if any(spiller(text, target, compile_texts) for target, _, text in others):
        return None
    return (
        f"remove this condition from csrc/config/{arch}/spills.hpp: {family!r}. None of {1 + len(others)} kernels "
        f"spills with {', '.join(compilers())}"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("arch", "family"), families(), ids=lambda name: name.replace(" ", "_"))
def test_a_family_still_spills(pytestconfig, arch, family) -> None:
    witness = witnesses()[arch, family]
    if not is_judged(witness):
        pytest.skip(f"only {witness['compiler']} spills it: name one in DG_TEST_NVRTC")
    fault = fault_of(arch, family, pytestconfig.stash[SEED])
    assert fault is None, fault


def test_each_family_has_one_witness() -> None:
    assert len(set(families())) == len(families()) >= 25
    assert set(witnesses()) == set(families())


def test_a_family_that_spills_no_more_is_to_be_removed() -> None:
    clean = Compiled(registers=168, spill_bytes=0, stack_bytes=0, complaints="", error=None)
    arch, family = families()[0]
    fault = fault_of(arch, family, 1, lambda texts, *_, **__: [clean] * len(texts))
    assert fault is not None
    assert fault.startswith(f"remove this condition from csrc/config/{arch}/spills.hpp: {family!r}.")
    assert "NVRTC" in fault


def seek() -> Iterator[dict]:
    """A witness for each family that has one: as it was where that spills."""
    known = witnesses() if WITNESSES.exists() else {}
    for arch, family in families():
        old = known.get((arch, family))
        if old and (not is_judged(old) or still_spills(old, compile_all)):
            yield old
            continue
        for target, (grouping, fields), text in islice(kernels_of_family(arch, family, 1), 4 * DRAWN):
            if spiller(text, target, compile_all):
                yield {"arch": arch, "family": family, "target": target, "grouping": grouping, "fields": fields}
                break
        else:
            print(f"{arch}: no kernel of {family!r} spills: remove it")


if __name__ == "__main__":
    found = list(seek())
    WITNESSES.write_text("[\n" + ",\n".join(json.dumps(each) for each in found) + "\n]\n")
