"""Loading and launching by the runtime itself, with kernels of a few lines: what the GEMM calls are built on."""

from __future__ import annotations

import pytest
import torch
from devices import FEW

from deep_gemm._extension import C

HEAD = """
struct Params { float* x; float* y; long long count; };
extern "C" __global__ void sample(const __grid_constant__ Params params) {
    const long long i = blockIdx.x * 128ll + threadIdx.x;
"""

SCALE = HEAD + "    if (i < params.count) params.y[i] = params.x[i] * 3.0f + 1.0f;\n}\n"

# Passes values through the last bytes of a large dynamic shared memory.
SHARED = (
    HEAD
    + """    extern __shared__ float shared[];
    float* last = shared + 50000;
    last[threadIdx.x] = i < params.count ? params.x[i] : 0.0f;
    __syncthreads();
    if (i < params.count) params.y[i] = last[127 - threadIdx.x];
}
"""
)

# Each block writes its rank in its cluster.
CLUSTER = (
    HEAD
    + """    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (i < params.count) params.y[i] = rank;
}
"""
)


def launch(
    text: str, x: torch.Tensor, y: torch.Tensor, *, cluster: int = 1, smem: int = 0, dependent: bool = False
) -> None:
    blocks = (x.numel() + 127) // 128
    C.jit_launch("sample", text, -(-blocks // cluster) * cluster, 128, cluster, smem, dependent, [x, y], [x.numel()])


def inputs(device: torch.device, count: int = 1000) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(count, device=device), torch.full((count,), -1.0, device=device)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_values(device):
    x, y = inputs(device)
    launch(SCALE, x, y)
    torch.testing.assert_close(y, x * 3 + 1)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_large_shared_memory(device):
    x, y = inputs(device, 512)
    launch(SHARED, x, y, smem=50000 * 4 + 512)
    torch.testing.assert_close(y, x.view(4, 128).flip(1).flatten())


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_clusters(device):
    x, y = inputs(device, 1024)
    launch(CLUSTER, x, y, cluster=4)
    torch.testing.assert_close(y.view(8, 128), (torch.arange(8, device=device) % 4)[:, None].expand(8, 128).float())


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_too_much_shared_memory_is_refused(device):
    x, y = inputs(device)
    with pytest.raises(ValueError, match="bytes of shared memory"):
        launch(SCALE, x, y, smem=1 << 20)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_grid_that_is_no_multiple_of_the_cluster_is_refused(device):
    x, y = inputs(device)
    with pytest.raises(ValueError, match=r"grid .*cluster"):
        C.jit_launch("sample", SCALE, 3, 128, 2, 0, False, [x, y], [x.numel()])


@pytest.mark.gpu
def test_dependent_launch(cuda):
    x, y = inputs(cuda)
    launch(SCALE, x, y)
    launch(
        SCALE.replace("    if", '    asm volatile("griddepcontrol.wait;" ::: "memory");\n    if'), y, x, dependent=True
    )
    torch.testing.assert_close(x, y * 3 + 1)


@pytest.mark.gpu
def test_parameters_of_another_size_are_refused(cuda):
    x, y = inputs(cuda)
    with pytest.raises(ValueError, match="takes 24 bytes of parameters, but 16 came"):
        C.jit_launch("sample", SCALE, 1, 128, 1, 0, False, [x, y], [])


@pytest.mark.gpu
def test_unseen_kernel_inside_a_graph_capture(cuda):
    """A kernel may be compiled and loaded while torch captures a graph."""
    x, y = inputs(cuda)
    text = SCALE.replace("3.0f", "5.0f")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(text, x, y)
    assert (y == -1).all()
    graph.replay()
    torch.testing.assert_close(y, x * 5 + 1)


@pytest.mark.gpu
def test_current_stream_is_used(cuda):
    x, y = inputs(cuda, 1 << 20)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(2.0)
        launch(SCALE, x, y)
    torch.cuda.current_stream().wait_stream(stream)
    assert (y == 7).all()


@pytest.mark.gpu
def test_thread_that_never_used_cuda(cuda):
    from concurrent.futures import ThreadPoolExecutor

    x, y = inputs(cuda)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(launch, SCALE, x, y).result()
    torch.cuda.synchronize()
    torch.testing.assert_close(y, x * 3 + 1)


@pytest.mark.gpu
def test_every_device(cuda):
    for index in range(torch.cuda.device_count()):
        x, y = inputs(torch.device("cuda", index))
        launch(SCALE, x, y)  # whatever device is current
        torch.testing.assert_close(y, x * 3 + 1)
    assert torch.cuda.current_device() == cuda.index


@pytest.mark.gpu
def test_facts(cuda):
    facts = C.device_facts(False, cuda.index)
    properties = torch.cuda.get_device_properties(cuda)
    assert facts["name"] == properties.name
    assert (facts["arch_major"], facts["arch_minor"]) == (properties.major, properties.minor)
    assert facts["num_sms"] == properties.multi_processor_count
    assert facts["target"].startswith(f"sm_{properties.major}{properties.minor}")
