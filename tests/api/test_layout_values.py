"""Row counts that no right caller hands over: refused on CPU tensors, and on GPUs with DG_CHECK_LAYOUTS, before
anything is written. Unread, they make wrong rows, but neither accesses out of bounds nor work without end."""

from __future__ import annotations

import fresh
import pytest
import torch
from bf16_inputs import values
from fake_driver import driver_lines
from grouped_inputs import alignment_of, contiguous, masked
from inputs import GuardedOutput

import deep_gemm
from deep_gemm import simulator

N, K = 136, 256
INT_MAX, INT_MIN = 2**31 - 1, -(2**31)


def int32(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def refused(layout: torch.Tensor, message: str, psum: bool = False, k: int = K) -> None:
    """By calls of FP8 and BF16, the second time as the first."""
    case = contiguous([5, 130, 70], N, k, "cpu")
    out = case.output()
    a, b = values((case.m, k), "cpu", 1), values((3, N, k), "cpu", 2)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout, use_psum_layout=psum)
        with pytest.raises(ValueError, match=message):
            deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, out.tensor, layout, use_psum_layout=psum)
    out.assert_untouched()


class TestRefusedOnTheCpu:
    def test_an_expert_that_starts_within_a_block(self) -> None:
        layout = contiguous([5, 130, 70], N, K, "cpu").indices
        layout[270:300] = 2
        refused(
            layout,
            r"grouped_layout must start each expert's rows at a multiple of the alignment for contiguous layouts, 128, "
            r"but row 270 belongs to expert 2 and row 256 to expert 1: see get_mk_alignment",
        )

    def test_another_expert_behind_padding(self) -> None:
        layout = contiguous([5, 130, 70], N, K, "cpu").indices
        layout[:128] = -1
        layout[7] = 0
        layout[100] = 2
        refused(layout, r"128, but row 100 belongs to expert 2 and row 7 to expert 0")

    def test_the_alignment_in_force(self) -> None:
        case = contiguous([5, 130, 70], N, K, "cpu", 64)
        out = case.output()
        with pytest.raises(ValueError, match="128, but row 64 belongs to expert 1 and row 0 to expert 0"):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
        out.assert_untouched()
        with alignment_of(64):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, case.indices)
        case.check(out.tensor)

    @pytest.mark.parametrize(
        ("ends", "message"),
        [
            ([5, -1, 300], r"grouped_layout must hold where each expert's rows end, but says -1 of expert 1"),
            (
                [5, 258, 200],
                r"got for expert 2 200, before its first row 384: expert 1 ends at 258, rounded up to .* 128",
            ),
            ([5, 100, 454], r"got for expert 1 100, before its first row 128: expert 0 ends at 5"),
        ],
    )
    def test_ends(self, ends, message) -> None:
        refused(int32(ends), message, psum=True)

    def test_an_empty_product_too(self) -> None:
        refused(int32([5, -1, 300]), "of expert 1", psum=True, k=0)

    def test_negative_counts(self) -> None:
        case = masked([5, 0, 40], 40, N, K, "cpu")
        out = case.output()
        counts = int32([5, -3, 40])
        a, b = values((3, 40, K), "cpu", 1), values((3, N, K), "cpu", 2)
        for _ in range(2):
            with pytest.raises(ValueError, match="masked_m must not be negative, got -3 for expert 1"):
                deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, counts, 8)
            with pytest.raises(ValueError, match="masked_m must not be negative, got -3 for expert 1"):
                deep_gemm.m_grouped_bf16_gemm_nt_masked(a, b, out.tensor, counts, 8)
        out.assert_untouched()

    def test_in_a_call_that_was_right_before(self) -> None:
        """Arguments that are equal to known ones are not: their contents changed."""
        case = contiguous([5, 130], N, K, "cpu")
        layout, out = case.indices, case.output()
        for _ in range(3):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
        layout[3] = 1
        with pytest.raises(ValueError, match="row 3 belongs to expert 1"):
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout)
        case.check(out.tensor)


ON_A_GPU = f"""
fp8 = torch.float8_e4m3fn
a = pose_as_cuda(torch.zeros(256, {K}).to(fp8)), pose_as_cuda(torch.ones(2, 256).T)
b = pose_as_cuda(torch.zeros(2, {N}, {K}).to(fp8)), pose_as_cuda(torch.ones(2, 2, 2))
layout = torch.tensor([0] * 128 + [1] * 128, dtype=torch.int32)
operands = {{"a": a[0], "a_scales": a[1], "b": b[0], "b_scales": b[1]}}
record = operands | {{"d": pose_as_cuda(torch.empty(256, {N})), "grouped_layout": pose_as_cuda(layout), "layout": 6}}
for _ in range(3):
    deep_gemm._extension.C.product(**record)
layout[130] = 0
driver = ctypes.CDLL("libcuda.so.1")
for captured in (False, True):
    driver.fake_capture_status(int(captured))
    try:
        deep_gemm._extension.C.product(**record)
        print("launched", flush=True)  # in turn with what the driver prints
    except ValueError as error:
        print("refused", error, flush=True)
"""


class TestOnAGpu:
    """What is asked of the driver by three right calls, a wrong one, and a wrong one that is captured."""

    def lines(self, setting: str) -> list[str]:
        lines = driver_lines(f"import ctypes, os\nos.environ['DG_CHECK_LAYOUTS'] = {setting!r}\n" + ON_A_GPU, "")
        starts = ("read", "wait", "launch", "refused")
        return [line for line in lines if line.startswith(starts)]

    def test_each_call_reads_the_layout_on_request_but_not_while_captured(self) -> None:
        lines = self.lines("1")
        right = ["read 1024 bytes", "wait for the stream", "launch"]
        assert [line if line in right else line.split()[0] for line in lines] == (
            3 * right + [*right[:2], "refused", "launch", "launched"]
        )
        assert "row 130 belongs to expert 0 and row 128 to expert 1" in lines[11]

    def test_nothing_is_read_by_itself(self) -> None:
        assert [line.split()[0] for line in self.lines("")] == 3 * ["launch"] + 2 * ["launch", "launched"]


WITHOUT_CHECKS = f"""
import sys
sys.path.insert(0, {__file__.rsplit("/", 1)[0]!r})
from test_layout_values import unread
result = unread()
"""
ENDS = [
    [INT_MIN, 5, 300],
    [-5, INT_MIN, 300],
    [INT_MAX, -1, INT_MAX],
    [5, INT_MAX, 7],
    [384, 0, 384],
    [-1000, -900, -128],
]


def unread() -> dict[str, int]:
    """Runs layouts that nobody reads first; the simulator refuses accesses out of bounds. Returns the most instructions
    that one of each kind took."""
    taken: dict[str, int] = {}

    def done(kind: str, out: GuardedOutput) -> None:
        out.check(complete=False)
        report = simulator.last_report()
        assert report is not None
        taken[kind] = max(taken.get(kind, 0), report.statistics["warp_instructions"])

    for dtype, zero_padding in ((torch.bfloat16, True), (torch.float32, False)):
        case = contiguous([5, 130, 70], N, K, "cpu")
        changing = torch.arange(case.m, dtype=torch.int32)
        contiguous_layouts = [
            ("right ends", case.ends),
            *(("ends", int32(ends)) for ends in ENDS),
            ("right indices", case.indices),
            *(("indices", indices) for indices in (changing % 3, changing)),
        ]
        for kind, layout in contiguous_layouts:
            out = case.output(dtype)
            more = {"use_psum_layout": kind.endswith("ends"), "ensure_zero_padding": zero_padding}
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(case.a, case.b, out.tensor, layout, **more)
            done(kind, out)
        case = masked([5, 0, 40], 40, N, K, "cpu")
        for kind, counts in (("right counts", [40] * 3), ("counts", [INT_MIN, INT_MAX, -1])):
            out = case.output(dtype)
            deep_gemm.m_grouped_fp8_gemm_nt_masked(case.a, case.b, out.tensor, int32(counts), 40)
            done(kind, out)
    return taken


def test_unread_ones_stay_within_bounds_and_end() -> None:
    taken = fresh.check(WITHOUT_CHECKS, DG_CHECK_LAYOUTS=0).result
    for kind in ("ends", "indices", "counts"):
        assert taken[kind] < 4 * taken[f"right {kind}"]


MORE_RUNS = """
from grouped_inputs import run_more_runs_than_any_legal_layout_has
run_more_runs_than_any_legal_layout_has(torch.device("cpu"))
"""


def test_more_runs_than_any_legal_layout_has() -> None:
    """Nothing is written beyond the table of them, or beyond D."""
    fresh.check(MORE_RUNS, DG_CHECK_LAYOUTS=0)
