"""Kernels that start while the one before still runs: launches ask for it, and every kernel waits."""

from __future__ import annotations

import re
import shutil

import pytest
import torch
from fake_driver import launches
from field_calls import kernel_of
from inputs import GuardedOutput, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm._extension import C
from deep_gemm._targets import GPUS, HOPPER_TARGET

GEMMS = {
    "dense": ("dense", {"m": 64, "n": 4096, "k": 7168}),
    "swapped, K split": ("dense", {"m": 1, "n": 2112, "k": 7168}),
    "weight gradient": ("dense", {"m": 4096, "n": 4096, "k": 4096, "per_row_b": 1, "fp32_output": 1, "add_c": 1}),
    "added in place": (
        "dense",
        {"m": 4096, "n": 4096, "k": 4096, "per_row_b": 1, "fp32_output": 1, "add_c": 1, "in_place": 1},
    ),
    "contiguous": ("m_contiguous", {"m": 8192, "n": 4096, "k": 2048, "groups": 8}),
    "runs of experts": (
        "m_contiguous",
        {"m": 8192, "n": 4096, "k": 2048, "groups": 64, "tile_rows": 256, "tile_cols": 128},
    ),
    "psum": ("m_psum", {"m": 8192, "n": 4096, "k": 2048, "groups": 8, "expected_m": 1024}),
    "masked": ("masked", {"m": 4096, "n": 4096, "k": 2048, "groups": 32, "expected_m": 192}),
    "K groups": ("k_contiguous", {"m": 4096, "n": 4096, "k": 32768, "groups": 8, "per_row_b": 1, "fp32_output": 1}),
}
# As csrc/api renders them.
OTHERS = {
    "scale_layout": ("ScaleLayoutParams", "run_scale_layout", "ScaleLayoutConfig kConfig{.tile_k = 16}"),
    "k_grouped_scale_layout": ("KGroupedScaleLayoutParams", "run_k_grouped_scale_layout", "int32_t kConfig = 128"),
    "transpose": ("TransposeParams", "run_transpose", "TransposeConfig kConfig{}"),
    "pack_weights": ("PackCodesParams", "run_pack_codes", "PackCodesConfig kConfig{.element = Element::s4m}"),
    "scales_pack_weights": ("PackScalesParams", "run_pack_scales", "PackScalesConfig kConfig{}"),
    "k_grouped_transpose": ("TransposeParams", "run_transpose", "TransposeConfig kConfig{.k_grouped = true}"),
}
# But for requests to the L2, after which nobody has read anything (test_first_weights.py, test_likely_tile.py).
GLOBAL_MEMORY = re.compile(
    r"^\s+(?:@\S+ )?(?:(?:ld|st|red|atom)\S*\.global|cp\.async\.bulk(?!\.prefetch)|cp\.reduce)", re.MULTILINE
)


def waits_first(name: str, text: str, target: str = HOPPER_TARGET) -> bool:
    ptx = bytes(C.jit_compile(name, text, target, "ptx")).decode()
    touched = GLOBAL_MEMORY.search(ptx)
    assert touched, "no access of global memory found: has the pattern to change?"
    return ptx.find("griddepcontrol.wait") in range(touched.start())


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("target", "name"),
    [(HOPPER_TARGET, name) for name in GEMMS]
    # SM100 has no tiles that end with an expert.
    + [("sm_100a", name) for name in GEMMS if name != "runs of experts"],
)
def test_gemms_wait_before_they_touch_memory(target, name) -> None:
    grouping, fields = GEMMS[name]
    kernel = kernel_of(grouping, {"num_sms": GPUS[target].sms, **fields}, target)
    assert waits_first(str(kernel["name"]), str(kernel["text"]), target)


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_wait_before_they_touch_memory(name) -> None:
    params, function, config = OTHERS[name]
    text = f"""#include <deep_gemm/kernels/{name.removeprefix("k_grouped_").removeprefix("scales_")}.cuh>
using namespace deep_gemm;
constexpr {config};
extern "C" __global__ void {name}(const __grid_constant__ {params} params) {{ {function}<kConfig>(params); }}
"""
    assert waits_first(name, text)


# Dense calls, of which the later ones are remembered, K groups, and a scale layout; early, not, and early again.
CALLS = """
from deep_gemm._extension import C
def fp8(*shape): return torch.zeros(*shape).to(torch.float8_e4m3fn)
a, sfa, b, sfb = map(pose_as_cuda, (fp8(64, 256), torch.ones(2, 64).T, fp8(128, 256), torch.ones(1, 2)))
d = pose_as_cuda(torch.zeros(64, 128).bfloat16())
flat_a, flat_b = ([pose_as_cuda(fp8(64 * 256)), pose_as_cuda(torch.ones(2, 64))] for _ in range(2))
groups, sizes = pose_as_cuda(torch.zeros(2, 64, 64)), [128, 128]
layout = pose_as_cuda(torch.tensor(sizes, dtype=torch.int32))
scales, out = pose_as_cuda(torch.ones(1, 64, 2)), pose_as_cuda(torch.ones(1, 2, 64).transpose(1, 2))
for early in (None, False, True):
    if early is not None:
        deep_gemm.set_pdl(early, "cuda:0")
    for _ in range(4):
        deep_gemm.fp8_gemm_nt((a, sfa), (b, sfb), d)
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(flat_a, flat_b, groups, sizes, layout)
    C.scale_layout_transform(scales, out, 64, 1, 0)
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_launches_ask_for_it() -> None:
    lines = launches(CALLS)
    each = len(lines) // 3
    assert len(lines) == 3 * each >= 18
    assert ["dependent 1" in line for line in lines] == [True] * each + [False] * each + [True] * each


# Lets the next kernel start at once, and writes only long after.
SLOW_COPY = """
struct Params { const float* from; float* to; long long count; };
extern "C" __global__ void slow_copy(const __grid_constant__ Params params) {
    asm volatile("griddepcontrol.launch_dependents;");
    const long long begin = clock64();
    while (clock64() - begin < 100000) {}
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < params.count; i += gridDim.x * blockDim.x)
        params.to[i] = params.from[i];
}
"""


# Where a kernel may start before the one ahead of it has ended.
STARTS_EARLY = pytest.mark.kernels_of("sm90", "sm100")


@pytest.mark.gpu
@STARTS_EARLY
@pytest.mark.parametrize("m", [8, 512])
def test_waits(cuda, m) -> None:
    """A kernel that starts while its scales are being written would find NaN."""
    rows, weights = random_rows((m, 1024), cuda, 2), random_blocks((2048, 1024), cuda, 3)
    written = rows.scales.T.contiguous()
    scales = torch.empty_like(written)
    aligned, row_major = type(rows)(rows.data, scales.T), type(rows)(rows.data, scales.view(m, 8))
    out = GuardedOutput((m, 2048), torch.bfloat16, cuda)

    def chain(a, values: torch.Tensor) -> None:
        scales.fill_(float("nan"))
        C.jit_launch("slow_copy", SLOW_COPY, 8, 128, 1, 0, False, [values, scales], [values.numel()])
        deep_gemm.fp8_gemm_nt(a, weights, out.tensor)

    for a, values in ((aligned, written), (row_major, rows.scales)):  # one kernel, and one behind that of the scales
        chain(a, values)
        assert_matches(out.tensor, product_nt(rows, weights))
        expected = out.tensor.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(2):
                chain(a, values)
        for run in [lambda a=a, values=values: chain(a, values)] * 5 + [graph.replay] * 3:
            run()
            out.check()
            assert torch.equal(out.tensor, expected)


@pytest.mark.gpu
@STARTS_EARLY
def test_waits_for_another_stream(cuda) -> None:
    """What the stream waits for between two kernels must have ended too, not only the kernel before."""
    rows, weights = random_rows((8, 1024), cuda, 2), random_blocks((2048, 1024), cuda, 3)
    written = rows.scales.T.contiguous()
    scales = torch.empty_like(written)
    outs = [GuardedOutput((8, 2048), torch.bfloat16, cuda) for _ in range(2)]
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    for _ in range(5):
        scales.fill_(float("nan"))
        side.wait_stream(main)
        with torch.cuda.stream(side):
            C.jit_launch("slow_copy", SLOW_COPY, 8, 128, 1, 0, False, [written, scales], [written.numel()])
        deep_gemm.fp8_gemm_nt(rows, weights, outs[0].tensor)
        main.wait_stream(side)
        deep_gemm.fp8_gemm_nt(type(rows)(rows.data, scales.T), weights, outs[1].tensor)
        for out in outs:
            out.check()
            assert_matches(out.tensor, product_nt(rows, weights))


@pytest.mark.gpu
def test_across_a_fork_and_a_join(cuda) -> None:
    """A captured graph in which kernels have predecessors of several kinds: kernels, a memset, another stream's."""
    cases = [(random_rows((64, 512), cuda, i), random_blocks((256, 512), cuda, i + 9)) for i in range(2)]
    outs = [GuardedOutput((64, 256), torch.bfloat16, cuda) for _ in cases]

    def multiply(i: int) -> None:
        deep_gemm.fp8_gemm_nt(*cases[i], outs[i].tensor)

    for i in range(2):
        multiply(i)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs[0].tensor.zero_()
        multiply(0)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            outs[1].tensor.fill_(float("nan"))
            multiply(1)
        multiply(0)
        torch.cuda.current_stream().wait_stream(side)
        multiply(1)
        multiply(0)
    for out in outs:
        out.tensor.fill_(float("nan"))
    graph.replay()
    for (a, b), out in zip(cases, outs, strict=True):
        out.check()
        assert_matches(out.tensor, product_nt(a, b))
