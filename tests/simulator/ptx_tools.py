"""What the simulator's tests share: small PTX texts, and kernels in CUDA C++ compiled at test time."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import torch

from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import BLACKWELL_TARGET, HOPPER_TARGET

HERE = Path(__file__).parent
SCHEDULES = [("eager", 0), ("lazy", 0), ("random", 5)]  # and seeds: what most tests run under
# What Hopper does not have; texts without it are for Hopper.
BLACKWELL_ONLY = re.compile(
    r"tcgen05|(?:fma|add|sub)[.\w]*\.f32\.b?f16|redux\.sync\.[\w.]*f32|\.f32x2|\.v8\.|ue8m0x2|e2m1x2|e2m3x2|e3m2x2"
)


def header(body: str, target: str = "") -> str:
    """The directives before a text; for the oldest of our targets that has its instructions, if none is given."""
    found = BLACKWELL_TARGET if BLACKWELL_ONLY.search(body) else HOPPER_TARGET
    return f".version 8.6\n.target {target or found}\n.address_size 64\n"


HEADER = header("")


def compile_cuda(file: str, target: str = HOPPER_TARGET, **macros: int | str) -> str:
    """PTX of a CUDA C++ file of this folder, through the library's own JIT (and its cache)."""
    defines = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    text = f'{defines}#line 1 "{file}"\n{(HERE / file).read_text()}'
    return bytes(C.jit_compile(file.split(".")[0], text, target, "ptx")).decode()


def kernel(body: str, registers: str = "", shared: str = "", declarations: str = "", target: str = "") -> str:
    """An entry `test` with parameters `out` and `in`, whose addresses are in %out and %in; %t is the thread index."""
    return f"""{header(body, target)}{declarations}
.visible .entry test(.param .u64 out, .param .u64 in)
{{
    .reg .pred %p<16>;
    .reg .b16 %h<64>;
    .reg .b32 %r<64>;
    .reg .f32 %f<160>;
    .reg .b64 %d<64>;
    .reg .f64 %g<16>;
    .reg .b32 %t;
    .reg .b64 %out, %in, %offset;
    {registers}
    {shared}
    ld.param.u64 %out, [out];
    ld.param.u64 %in, [in];
    mov.u32 %t, %tid.x;
{body}
    ret;
}}
"""


def run_kernel(
    text: str, out: torch.Tensor, inputs: torch.Tensor | None = None, threads: int = 32, **options
) -> simulator.Report:
    given = inputs if inputs is not None else torch.zeros(1, dtype=torch.int32)
    params = struct.pack("QQ", out.data_ptr(), given.data_ptr())
    return simulator.run(text, block=[threads], params=params, tensors=[out], inputs=[given], **options)


def evaluate(instructions: str, inputs: list[int], width: int = 32, outputs: int = 1, result: str = "%r0") -> int:
    """Run straight code on one value of each input register (%r1, %r2 ... or %d1 ...) and return the result's bits.

    Inputs are loaded as 64-bit words: into %dN, and their low half into %rN (and into %hN, %fN by the code itself).
    """
    loads = "".join(
        f"    ld.global.b64 %d{i + 1}, [%in+{8 * i}];\n    cvt.u32.u64 %r{i + 1}, %d{i + 1};\n"
        for i in range(len(inputs))
    )
    body = f"{loads}    {instructions}\n    st.global.b{width} [%out], {result};"
    mask = (1 << 64) - 1
    data = torch.tensor([x & mask if x & mask < 1 << 63 else (x & mask) - (1 << 64) for x in inputs], dtype=torch.int64)
    out = torch.zeros(1, dtype=torch.int64)
    run_kernel(kernel(body), out, data, threads=1)
    return int(out[0]) & ((1 << width) - 1)
