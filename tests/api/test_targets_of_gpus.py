"""What each GPU's kernels are compiled for, on a driver that tells of GPUs which are not there."""

from __future__ import annotations

import re
import shutil

import pytest
from fake_driver import archs, lines_of

from deep_gemm._targets import GPUS

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")

OWN = {
    "8.0": "sm_80",
    "8.6": "sm_86",
    "8.7": "sm_87",
    "8.8": "sm_88",
    "8.9": "sm_89",
    "9.0": "sm_90a",
    "10.0": "sm_100f",
    "10.3": "sm_100f",
    "11.0": "sm_110",
    "12.0": "sm_120a",
    "12.1": "sm_121a",
}
# GPUs that no target is named after: the newest one before them whose code every newer GPU runs.
UNNAMED = {"9.5": "sm_89", "10.1": "sm_89", "12.5": "sm_121", "13.0": "sm_121"}


def test_each_gpu_has_its_target() -> None:
    code = "for index in range(COUNT): say(deep_gemm.get_target(f'cuda:{index}'))"
    of_each = {**OWN, **UNNAMED}
    lines = lines_of(code.replace("COUNT", str(len(of_each))), " ".join(of_each))
    assert lines == [f"here {target}" for target in of_each.values()]
    assert set(of_each.values()) <= set(GPUS)


def test_a_gpu_that_is_too_old_is_refused_with_what_is_served() -> None:
    code = """
say(rejection(product))
say(rejection(lambda: deep_gemm.get_target("cuda:0")))
deep_gemm.set_target("sm_80", "cuda:0")
say(rejection(product))
product(1)
"""
    lines = lines_of(code, "7.5 8.6")
    needs = "here deep_gemm needs a GPU of compute capability 8.0 or newer, but Fake 0 has 7.5; there are kernels for "
    assert lines[0].startswith(needs + "sm_80, ")
    assert lines[0].endswith(", sm_90a, sm_100a, sm_100f and sm_103a")
    assert lines[:3] == lines[:1] * 3
    assert archs(lines) == {"sm80"}


def test_gpus_of_two_generations_in_one_process_have_kernels_each() -> None:
    lines = lines_of("product(0)\nsay('next')\nproduct(1)\nsay('next')\nproduct(0)\nproduct(1)", "8.6 9.0")
    first, second = (index for index, line in enumerate(lines) if line.startswith("here"))
    of_ampere, of_hopper, again = lines[:first], lines[first:second], lines[second:]
    assert (archs(of_ampere), archs(of_hopper), archs(again)) == ({"sm80"}, {"sm90"}, set())
    assert [line for line in lines if line.startswith("load compute")] == []
    assert [re.search(r"on context (\d)", line)[1] for line in again if line.startswith("launch")] == ["0", "1"]
    assert not any("dependent" in line for line in of_ampere)
    assert any("dependent" in line for line in of_hopper)


def test_a_gpu_newer_than_every_target_runs_ptx() -> None:
    lines = lines_of("product()", "13.0")
    assert {line.split(" on ")[0] for line in lines if line.startswith("load")} == {"load compute_121"}
    assert archs(lines) == {"sm80"}


def test_one_image_serves_the_family_of_rtx_50_and_dgx_spark() -> None:
    """As machine code; 10.0 is another family."""
    code = """
deep_gemm.set_target("sm_120f", "cuda:0")
product(0)
deep_gemm.set_target("sm_120f", "cuda:1")
product(1)
say(rejection(lambda: (deep_gemm.set_target("sm_120f", "cuda:2"), product(2))))
"""
    lines = lines_of(code, "12.0 12.1 10.0")
    assert {line.split(" on ")[0] for line in lines if line.startswith("load")} == {"load"}
    assert archs(lines) == {"sm120"}
    assert "code for sm_120f runs on no other GPU, and Fake 2 is sm_100f" in "".join(lines)


def test_code_of_an_older_gpu_of_the_same_kind_is_machine_code() -> None:
    """sm_86 on sm_89 is; what Orin (sm_87) runs is its own."""
    code = """
for index, target in ((0, "sm_86"), (1, "sm_86"), (0, "sm_87")):
    deep_gemm.set_target(target, f"cuda:{index}")
    product(index)
    say("next")
"""
    lines = lines_of(code, "8.9 9.0")
    loads: list[set[str]] = [set()]
    for line in lines:
        if line.startswith("here"):
            loads.append(set())
        elif line.startswith("load"):
            loads[-1].add(line.split(" on ")[0])
    assert loads[:3] == [{"load"}, {"load compute_86"}, {"load compute_87"}]
