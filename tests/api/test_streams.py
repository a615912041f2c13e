"""Streams, devices, threads and CUDA graphs."""

from __future__ import annotations

import threading

import pytest
import torch
from inputs import Operand, random_blocks, random_rows
from reference import assert_matches, product_nt

import deep_gemm

pytestmark = pytest.mark.gpu


def problem(device: torch.device, seed: int, m: int = 128, n: int = 512, k: int = 1024):
    a, b = random_rows((m, k), device, seed), random_blocks((n, k), device, seed + 1)
    return a, b, torch.full((m, n), float("nan"), dtype=torch.bfloat16, device=device)


def check(a: Operand, b: Operand, d: torch.Tensor) -> None:
    assert_matches(d, product_nt(a, b))


def test_follows_torchs_current_stream(cuda) -> None:
    """The inputs are written late on a side stream: a call on another stream would read them too early."""
    a, b, d = problem(cuda, 0)
    late = Operand(torch.zeros_like(a.data), torch.zeros_like(a.scales))
    deep_gemm.fp8_gemm_nt(late, b, d)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.data.copy_(a.data)
        late.scales.copy_(a.scales)
        deep_gemm.fp8_gemm_nt(late, b, d)
    stream.synchronize()
    check(a, b, d)


def test_two_streams_at_once(cuda) -> None:
    problems = [problem(cuda, seed, m=64 + seed) for seed in (0, 10)]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    for _ in range(50):
        for stream, (a, b, d) in zip(streams, problems, strict=True):
            with torch.cuda.stream(stream):
                deep_gemm.fp8_gemm_nt(a, b, d)
    torch.cuda.synchronize()
    for a, b, d in problems:
        check(a, b, d)


def test_threads(cuda) -> None:
    """Eight threads, each with its stream and its shapes, some of which nobody has compiled before."""
    shapes = [(1 + 40 * index, 256 + 8 * index, 256 + 128 * index) for index in range(8)]
    failures: list[BaseException] = []
    start = threading.Barrier(len(shapes))

    def work(index: int) -> None:
        try:
            with torch.cuda.device(cuda), torch.cuda.stream(torch.cuda.Stream(cuda)):
                a, b, d = problem(cuda, index, *shapes[index])
                start.wait(timeout=60)
                for _ in range(20):
                    d.fill_(float("nan"))
                    deep_gemm.fp8_gemm_nt(a, b, d)
                torch.cuda.current_stream().synchronize()
                check(a, b, d)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(shapes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_two_devices_in_turn() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two GPUs, found {torch.cuda.device_count()}")
    devices = [torch.device("cuda", index) for index in range(2)]
    problems = [problem(device, index, m=96 + index) for index, device in enumerate(devices)]
    for _ in range(10):
        for a, b, d in problems:  # the current device stays 0: the tensors decide
            deep_gemm.fp8_gemm_nt(a, b, d)
    for device in devices:
        torch.cuda.synchronize(device)
    for a, b, d in problems:
        check(a, b, d)


def test_two_devices_from_two_threads() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two GPUs, found {torch.cuda.device_count()}")
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            device = torch.device("cuda", index)
            with torch.cuda.device(device):
                a, b, d = problem(device, index)
                for _ in range(50):
                    deep_gemm.fp8_gemm_nt(a, b, d)
                torch.cuda.synchronize()
                check(a, b, d)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def capture(call) -> torch.cuda.CUDAGraph:
    call()  # compiles, which no capture may contain
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


@pytest.mark.parametrize("m", [1, 64, 300])
@pytest.mark.parametrize("row_major_scales", [True, False])
def test_captured_and_replayed_with_other_data(cuda, m, row_major_scales) -> None:
    a, b, d = problem(cuda, 0, m=m)
    if not row_major_scales:
        padded = torch.zeros((a.scales.shape[1], -(-m // 4) * 4), device=cuda)
        padded[:, :m] = a.scales.T
        a = Operand(a.data, padded[:, :m].T)
    graph = capture(lambda: deep_gemm.fp8_gemm_nt(a, b, d))
    for seed in (20, 30):
        other_a, other_b, _ = problem(cuda, seed, m=m)
        a.data.copy_(other_a.data)
        a.scales.copy_(other_a.scales)
        b.data.copy_(other_b.data)
        b.scales.copy_(other_b.scales)
        d.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        check(other_a, other_b, d)


def test_captured_accumulation(cuda) -> None:
    a, b, _ = problem(cuda, 0)
    d = torch.zeros((128, 512), device=cuda)
    graph = capture(lambda: deep_gemm.fp8_gemm_nt(a, b, d, c=d))
    d.zero_()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    one = product_nt(a, b)
    assert_matches(d, type(one)(one.value * 3, one.magnitude * 3))


def test_a_chain_of_calls_in_a_graph(cuda) -> None:
    """Each product reads what the call before it wrote: no call may start too early."""
    a, b, _ = problem(cuda, 0, m=64, n=512, k=512)
    out = torch.zeros((64, 512), dtype=torch.float32, device=cuda)

    def step() -> None:
        deep_gemm.fp8_gemm_nt(a, b, out)
        deep_gemm.fp8_gemm_nt(a, b, out, c=out)
        deep_gemm.fp8_gemm_nt(a, b, out, c=out)

    graph = capture(step)
    for _ in range(20):
        out.fill_(float("nan"))
        graph.replay()
    torch.cuda.synchronize()
    one = product_nt(a, b)
    assert_matches(out, type(one)(one.value * 3, one.magnitude * 3))


def test_scales_in_a_workspace_survive_reuse_of_their_memory(cuda) -> None:
    """Row-major scales go through a temporary; memory allocated right after the call must not disturb it."""
    a, b, d = problem(cuda, 0, m=4000, n=2048, k=4096)
    deep_gemm.fp8_gemm_nt(a, b, d)
    for _ in range(20):
        deep_gemm.fp8_gemm_nt(a, b, d)
        torch.full((32 * 4000,), float("nan"), device=cuda)
    torch.cuda.synchronize()
    check(a, b, d)
