"""Calls that come again with the same tensors keep their launch ready: what must not be the same all the same.

A launch is kept at its second coming, so a call is made three times before anything is changed.
"""

from __future__ import annotations

import shutil
import threading

import pytest
import torch
from candidates import candidates, forced
from devices import EACH_ARCH
from fake_driver import launches
from grouped_inputs import alignment_of
from inputs import Operand, mn_major, random_blocks, random_rows
from reference import Product, assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C


@pytest.fixture(autouse=True)
def defaults_afterwards():
    yield
    for name, value in {"num_sms": 0, "ignore_compile_dims": 0, "block_m_multiple_of": 1}.items():
        C.set_call_setting(True, 0, name, value)


def rows(shape: tuple[int, ...], device, seed: int) -> Operand:
    """Scales as the kernel reads them: a call that must bring them into that layout is never kept."""
    a = random_rows(shape, device, seed)
    return Operand(a.data, mn_major(a.scales))


def check(a: Operand, b: Operand, d: torch.Tensor, times: int = 1, **more) -> None:
    for _ in range(times):
        d.fill_(float("nan"))
        deep_gemm.fp8_gemm_nt(a, b, d, **more)
        assert_matches(d, product_nt(a, b))


def problem(device, m: int = 70, n: int = 136, k: int = 256):
    return rows((m, k), device, 0), random_blocks((n, k), device, 1), torch.empty((m, n), device=device).bfloat16()


def launched_blocks() -> int:
    return simulator.last_report().statistics["blocks"]


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_other_data(device) -> None:
    a, b, d = problem(device)
    check(a, b, d, times=3)
    for seed in (10, 20):
        other = rows(a.data.shape, device, seed)
        a.data.copy_(other.data)
        a.scales.copy_(other.scales)
        check(a, b, d)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_the_same_memory_as_another_shape(device) -> None:
    """Addresses and strides stay, and in turn one extent, or D's dtype, is another one."""
    a, b = rows((64, 256), device, 0), random_blocks((128, 256), device, 1)
    memory = torch.empty((64, 128), device=device)

    def check_part(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16, times: int = 1) -> None:
        part_a = Operand(a.data[:m, :k], a.scales[:m, : k // 128])
        part_b = Operand(b.data[:n, :k], b.scales[:, : k // 128])
        check(part_a, part_b, memory.view(dtype)[:m, :n], times)

    check_part(64, 128, 256, times=3)
    for other in ((64, 128, 128), (64, 120, 256), (32, 128, 256), (64, 128, 256, torch.float32)):
        check_part(*other, times=3)
        check_part(64, 128, 256, times=3)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_with_and_without_c(device) -> None:
    a, b, _ = problem(device)
    d = torch.empty((70, 136), device=device)
    c = torch.randn(70, 136, device=device)
    one = product_nt(a, b)
    for _ in range(4):
        check(a, b, d)
        deep_gemm.fp8_gemm_nt(a, b, d, c=d)
        assert_matches(d, type(one)(one.value * 2, one.magnitude * 2))
        deep_gemm.fp8_gemm_nt(a, b, d, c=c)
        assert_matches(d, product_nt(a, b, c))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_scales_in_a_workspace_are_read_each_time(device) -> None:
    a, b, d = random_rows((70, 256), device, 0), *problem(device)[1:]
    check(a, b, d, times=3)
    a.scales.mul_(2)
    check(a, b, d, times=3)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_refused_after_it_was_right(device) -> None:
    """What lies at the address does not matter: the tensor that comes does."""
    a, b, d = problem(device)
    check(a, b, d, times=3)
    with pytest.raises(TypeError, match="a must be float8_e4m3fn"):
        deep_gemm.fp8_gemm_nt((a.data.view(torch.uint8), a.scales), b, d)
    with pytest.raises(ValueError, match="b has K=128"):
        deep_gemm.fp8_gemm_nt(a, (b.data[:, :128], b.scales), d)
    with pytest.raises(ValueError, match="granularity of a"):
        deep_gemm.fp8_gemm_nt(a, b, d, recipe=(2, 128, 128))
    check(a, b, d)


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_experts_move(device) -> None:
    """grouped_layout is memory like any other: read by each launch, and another tensor is another call."""
    a, b = rows((256, 256), device, 0), random_blocks((2, 136, 256), device, 1)
    d = torch.empty((256, 136), device=device).bfloat16()
    first = torch.zeros(256, dtype=torch.int32, device=device)
    first[128:] = 1
    second = 1 - first

    def check_experts(layout: torch.Tensor) -> None:
        d.fill_(float("nan"))
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, layout)
        for start in (0, 128):
            part, expert = slice(start, start + 128), int(layout[start])
            wanted = product_nt(Operand(a.data[part], a.scales[part]), Operand(b.data[expert], b.scales[expert]))
            assert_matches(d[part], wanted)

    for _ in range(3):
        check_experts(first)
        check_experts(second)
    first.copy_(second)
    check_experts(first)


def test_settings() -> None:
    a, b, d = problem("cpu", m=256, n=512)
    check(a, b, d, times=3)
    assert launched_blocks() > 1
    deep_gemm.set_num_sms(1, "cpu")
    check(a, b, d, times=3)
    assert launched_blocks() == 1
    deep_gemm.set_num_sms(0, "cpu")
    check(a, b, d)
    assert launched_blocks() > 1


def test_settings_of_another_thread() -> None:
    """Each thread keeps its own calls; a change made by one holds for all."""
    a, b, d = problem("cpu", m=256, n=512)
    check(a, b, d, times=3)
    thread = threading.Thread(target=deep_gemm.set_num_sms, args=(1, "cpu"))
    thread.start()
    thread.join()
    check(a, b, d)
    assert launched_blocks() == 1


def test_alignment() -> None:
    a, b = rows((256, 256), "cpu", 0), random_blocks((2, 136, 256), "cpu", 1)
    d = torch.empty((256, 136)).bfloat16()
    ends = torch.tensor([64, 192], dtype=torch.int32)  # the second expert starts at 64 or at 128

    def written_rows() -> torch.Tensor:
        d.fill_(float("nan"))
        deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, b, d, ends, use_psum_layout=True)
        return ~d.isnan().any(dim=1)

    for _ in range(3):
        assert written_rows().all()  # up to 192 rounded up to 128
    with alignment_of(64):
        for _ in range(3):
            assert written_rows().sum() == 192


def test_forced_config() -> None:
    a, b, d = problem("cpu", m=256, n=512)
    num_sms = simulator.get_options()["num_sms"]
    check(a, b, d, times=3)

    def work() -> tuple[int, int]:
        statistics = simulator.last_report().statistics
        return statistics["tma_copies"], statistics["matrix_multiplies"]

    chosen, seen = work(), set()
    legal = [x for x in candidates(256, 512, 256, num_sms) if x.rejection is None and x.cluster == 1]
    for candidate in (legal[0], legal[-1]):
        with forced(torch.device("cpu"), 256, 512, 256, candidate):
            check(a, b, d, times=3)
            seen.add(work())
    assert len(seen) == 2
    check(a, b, d)
    assert work() == chosen


def test_the_simulator_becomes_another_machine() -> None:
    a, b, d = problem("cpu", m=256, n=512)
    check(a, b, d, times=3)
    for num_sms in (2, 3):
        with simulator.options(num_sms=num_sms):
            check(a, b, d, times=3)
            assert launched_blocks() <= num_sms
    check(a, b, d)
    assert launched_blocks() > 3


DRIVER = """
import tvm_ffi
a, b = torch.zeros(64, 256).to(torch.float8_e4m3fn), torch.zeros(128, 256).to(torch.float8_e4m3fn)
sfa, sfb, d = torch.ones(2, 64).T, torch.ones(1, 2), torch.zeros(64, 128).bfloat16()
posed = {i: [pose_as_cuda(x, i) for x in (a, sfa, b, sfb, d)] for i in (0, 3)}
for turn in range(4):
    for index in (0, 3):
        for stream in (0xab, 0xcd):
            x = posed[index]
            with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", index), stream):
                deep_gemm.fp8_gemm_nt((x[0], x[1]), (x[2], x[3]), x[4])
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_streams_and_devices() -> None:
    """The same addresses on two devices and two streams, on a driver that only tells what it was asked."""
    wanted = [(index, stream) for _ in range(4) for index in (0, 3) for stream in ("ab", "cd")]
    lines = launches(DRIVER)
    assert len(lines) == len(wanted)
    for line, (index, stream) in zip(lines, wanted, strict=True):
        assert f"on context {index}:" in line
        assert f"stream {stream} " in line


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_another_alpha(device) -> None:
    """None, and a number whose bits are zero, among them."""
    a, b, d = problem(device)
    plain = product_nt(a, b)
    for alpha in (None, 0.0, 2.0, -0.5, None):
        for _ in range(3):
            d.fill_(float("nan"))
            deep_gemm.fp8_gemm_nt(a, b, d, alpha=alpha)
            factor = 1.0 if alpha is None else alpha
            assert_matches(d, Product(plain.value * factor, plain.magnitude * abs(factor)))


@pytest.mark.parametrize("device", EACH_ARCH, indirect=True)
def test_another_recipe_of_the_same_tensors(device) -> None:
    """B's 2 x 2 scales are of blocks; of rows they are too few, which the call before must not hide."""
    a, b, d = problem(device)
    check(a, b, d, times=3)
    with pytest.raises(ValueError, match="b's scales must be"):
        deep_gemm.fp8_gemm_nt(a, b, d, recipe=(1, 1, 128))
    check(a, b, d, times=2, recipe=(1, 128, 128))
