"""Kernels know their config when they are compiled: none reads it, or a table that its fields index, while it runs.

To NVRTC of CUDA 13.2 and later a template argument that is a struct is an object in memory, wherever a function gets it
by reference. Threads then read it, and keep tables and sums in local memory. Those that are `Constant` are references.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from field_calls import kernel_of

from deep_gemm._extension import C
from deep_gemm._targets import GPUS

HEADERS = Path(__file__).resolve().parents[2] / "deep_gemm" / "include"
STRUCT = re.compile(r"^(?:constexpr )?struct (\w+)", re.MULTILINE)
LIST = re.compile(r"template <([^;{}]*?)>\s*(?:\w|\[)")
CALLS = [
    ("sm_80", "m_contiguous", {"alignment": 128, "groups": 4, "expected_m": 256, "gran_k_b": 32, "per_row_b": 1}),
    ("sm_90a", "masked", {"groups": 4, "expected_m": 194}),
    ("sm_90a", "dense", {"gate": 1, "quantised": 128}),
    ("sm_100a", "dense", {"bf16": 1, "u4": 1, "gran_k_b": 128}),
    ("sm_120a", "dense", {"exponent_scales": 1, "gran_k_a": 32, "gran_k_b": 32, "per_row_b": 1}),
]


def test_structs_are_constant_template_arguments() -> None:
    texts = {path: re.sub(r"Constant<\w+>", "Constant", path.read_text()) for path in HEADERS.rglob("*.cuh")}
    structs = {name for text in texts.values() for name in STRUCT.findall(text)}
    assert {"GemmConfig", "Operand", "Scaling"} <= structs
    by_value = [
        f"{path.name}: {found}"
        for path, text in texts.items()
        for parameters in LIST.findall(text)
        for found, name in re.findall(r"((?:^|[,<] ?)(\w+)(?: \w+)?(?= ?[,=]|$))", parameters)
        if name in structs
    ]
    assert not by_value


@pytest.mark.parametrize(("target", "grouping", "fields"), CALLS)
def test_no_kernel_reads_its_config(target, grouping, fields) -> None:
    sizes = {"m": 512, "n": 512, "k": 1024, "num_sms": GPUS[target].sms}
    kernel = kernel_of(grouping, sizes | fields, target)
    ptx = bytes(C.jit_compile(str(kernel["name"]), str(kernel["text"]), target, "ptx")).decode()
    assert "_ZTAX" not in ptx, "the config is an object in memory"
    assert not re.search(r"\b(?:ld|st)\.local", ptx)
