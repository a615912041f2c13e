"""printf of kernels: what C prints, on standard output, lane after lane."""

from __future__ import annotations

import pytest
import torch
from ptx_tools import header

from deep_gemm import simulator

SOURCE = r"""
__device__ const char kName[] = "a name";
extern "C" __global__ void say(int* x) {
    __shared__ char shared[4];
    const char* const which = x[threadIdx.x] > 3 ? "high" : "low";
    if (threadIdx.x == 0) shared[0] = 'o', shared[1] = 'k', shared[2] = 0;
    __syncwarp();
    const int given = printf(FORMAT);
    x[threadIdx.x] = given;
}
"""
# What printf is given; a lane's output, of its number t and its x[t] = 2 * t.
CALLS = {
    "nothing to convert": (r'"plain 100%%\n"', lambda t: "plain 100%\n", 0),
    "integers": (
        r'"%d %u %x %#o %i|%5d|%-5d|%+d|%03d\n", -x[threadIdx.x], 7u, 255, 8, -1, 42, 42, 42, 7',
        lambda t: f"{-2 * t} 7 ff 010 -1|   42|42   |+42|007\n",
        9,
    ),
    "wide and narrow integers": (
        r'"%lld %llu %lx %hd %hhu %zu\n", -(1ll << 40), ~0ull, 1l << 33, 65537, 257, sizeof(x)',
        lambda t: f"{-(1 << 40)} {2**64 - 1} {1 << 33:x} 1 1 8\n",
        6,
    ),
    "floats": (
        r'"%f %.2e %g %10.3f %a\n", x[threadIdx.x] * 0.25f, 12345.678, 1e-9, 3.14159, 1.0',
        lambda t: f"{0.5 * t:f} 1.23e+04 1e-09      3.142 0x1p+0\n",
        5,
    ),
    "text": (
        r'"%s %s %-6s| %c %.2s\n", which, kName, shared, 65 + threadIdx.x, "xyz"',
        lambda t: f"{'high' if 2 * t > 3 else 'low'} a name ok    | {chr(65 + t)} xy\n",
        5,
    ),
    "a width and a precision that are given": (r'"%*d|%.*f\n", 6, 7, 1, 0.25', lambda t: "     7|0.2\n", 4),
    "a long text": (r'"%200d|%s\n", 1, kName', lambda t: f"{1:200d}|a name\n", 2),
}


@pytest.mark.parametrize("call", CALLS)
def test_as_c_prints_it(capfd, call) -> None:
    given, wanted, count = CALLS[call]
    x = torch.arange(3, dtype=torch.int32) * 2
    text = simulator.compile_cuda(SOURCE.replace("FORMAT", given))
    simulator.run(text, grid=[1], block=[3], params=simulator.parameters(x), tensors=[x])
    assert capfd.readouterr().out == "".join(wanted(lane) for lane in range(3))
    assert x.tolist() == [count] * 3  # what printf returns


def test_lanes_that_do_not_take_part_print_nothing(capfd) -> None:
    text = simulator.compile_cuda(
        'extern "C" __global__ void odd() { if (threadIdx.x % 2) printf("%d;", threadIdx.x); }'
    )
    simulator.run(text, grid=[1], block=[8], params=b"", tensors=[])
    assert sorted(capfd.readouterr().out.split(";")) == ["", "1", "3", "5", "7"]


def test_printed_before_a_trap(capfd) -> None:
    text = simulator.compile_cuda('extern "C" __global__ void stop() { printf("why\\n"); __trap(); }')
    with pytest.raises(RuntimeError, match="the kernel trapped"):
        simulator.run(text, grid=[1], block=[1], params=b"", tensors=[])
    assert capfd.readouterr().out == "why\n"


@pytest.mark.parametrize(("conversion", "named"), [("%n", "%n"), ("%5k", "%5k"), ("%", "%")])
def test_what_c_does_not_have(conversion, named) -> None:
    text = simulator.compile_cuda(f'extern "C" __global__ void k(int* x) {{ printf("{conversion}", x); }}')
    x = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=f"printf has no conversion '{named}' in \"{conversion}\""):
        simulator.run(text, grid=[1], block=[1], params=simulator.parameters(x), tensors=[x])


def test_text_that_is_nowhere() -> None:
    text = simulator.compile_cuda('extern "C" __global__ void k(const char* x) { printf("%s", x + 4096); }')
    x = torch.ones(8, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="out of bounds"):
        simulator.run(text, grid=[1], block=[1], params=simulator.parameters(x), tensors=[], inputs=[x])


def test_a_call_that_is_no_printf() -> None:
    call = "{ .param .b64 p; st.param.b64 [p], 0; .param .b32 r; call (r), vprintf, (p); }"
    with pytest.raises(RuntimeError, match=r"vprintf must be called as \(result\), vprintf, \(format, arguments\)"):
        simulator.run(f"{header('')}.visible .entry k() {{ {call} ret; }}", grid=[1], block=[1], params=b"", tensors=[])
