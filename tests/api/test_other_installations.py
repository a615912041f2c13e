"""Beside other installations: their names, their operators, and what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fresh import check

import deep_gemm

ABSENT = ["mega_mhc", "bf16_mega_gate", "nvfp4_mega_moe", "locality_domain"]  # clients have other ways
OTHER = """
import sys, types
other = types.ModuleType("other_gemm")
other.mega_mhc = lambda x: ("theirs", x)
other.bf16_mega_moe = lambda x: ("theirs", x)
sys.modules["other_gemm"] = other
"""


@pytest.mark.parametrize("name", ABSENT)
def test_a_name_without_a_kernel_is_absent(name) -> None:
    assert not hasattr(deep_gemm, name)
    assert name not in dir(deep_gemm)


def test_names_that_transformers_needs_to_load_are_there() -> None:
    assert callable(deep_gemm.get_symm_buffer_for_mega_moe)
    for name in ("bf16_mega_moe", "fp8_fp4_mega_moe", "transform_weights_for_mega_moe"):
        with pytest.raises(NotImplementedError, match=f"deep_gemm.{name} is not there yet"):
            getattr(deep_gemm, name)()


def test_another_installation_serves_what_is_absent_where_the_user_says_so() -> None:
    found = "[ours.mega_mhc(3), ours.bf16_mega_moe(4), hasattr(ours, 'nothing')]"
    code = f"{OTHER}\nimport deep_gemm as ours\nresult = {found}"
    assert check(code, DG_FALLBACK="other_gemm").result == [["theirs", 3], ["theirs", 4], False]
    code = f"{OTHER}\nimport deep_gemm\nresult = hasattr(deep_gemm, 'mega_mhc')"
    assert check(code, DG_FALLBACK=None).result is False


def test_a_fallback_that_cannot_be_imported_is_named() -> None:
    code = """
import deep_gemm
try:
    deep_gemm.mega_mhc
    result = None
except ImportError as error:
    result = str(error)
"""
    said = check(code, DG_FALLBACK="1").result
    assert "DG_FALLBACK=1 wants mega_mhc from vllm.third_party.deep_gemm, which cannot be imported" in said


@pytest.mark.parametrize("first", [True, False], ids=["registered before", "registered after"])
def test_operators_of_others_keep_their_namespace(first) -> None:
    """Another copy of DeepGEMM registers all of `deep_gemm`; ours stay where they are."""
    theirs = """
import torch
library = torch.library.Library("deep_gemm", "DEF")
for name in ("theirs", "fp8_gemm_nt"):
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x + 1, "CPU")
"""
    code = f"""
import importlib
{theirs if not first else ""}
x = torch.zeros(2)
result = [torch.ops.deep_gemm.theirs(x).sum().item(), torch.ops.deep_gemm.fp8_gemm_nt(x).sum().item(),
          torch.ops.deep_gemm.bf16_gemm_nt is torch.ops.deep_gemm_jit.bf16_gemm_nt]
"""
    if first:
        program = f"{theirs}\nimport deep_gemm\n{code}\nprint(result)"

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "[2.0, 2.0, True]", done.stderr
    else:
        assert check(code).result == [2.0, 2.0, True]


def test_import_without_torch_says_so_in_one_sentence() -> None:
    code = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
try:
    import deep_gemm
except ImportError as error:
    print(error)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "deep_gemm needs torch 2.4 or newer, which is not installed: pip install torch", done
