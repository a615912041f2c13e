"""An entry for the copy engine: a tensor map, what is written and what is read, a barrier that is ready."""

from __future__ import annotations

import struct

import torch
from ptx_tools import HEADER

from deep_gemm import simulator


def entry(body: str, shared_bytes: int = 8192) -> str:
    """Parameters: a tensor map, out, in. A barrier for one arrival is ready; lane 0 runs `body`."""
    return (
        HEADER
        + f"""
.visible .entry test(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 in)
{{
    .reg .pred %p<8>;
    .reg .b32 %r<64>;
    .reg .b64 %d<32>;
    .reg .b16 %h<8>;
    .shared .align 1024 .b8 data[{shared_bytes}];
    .shared .align 8 .b64 bar;
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    mov.u32 %r0, data;
    mov.u32 %r1, bar;
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra EXIT;
    mbarrier.init.shared::cta.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
{body}
EXIT:
    ret;
}}
"""
    )


WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra WAIT;"


def dump(count: int) -> str:
    """Lane 0 copies the first `count` bytes of shared memory to `out`."""
    return f"""
    mov.u32 %r20, 0;
DUMP:
    add.u32 %r21, %r0, %r20;
    ld.shared.v4.u32 {{%r22, %r23, %r24, %r25}}, [%r21];
    cvt.u64.u32 %d20, %r20;
    add.u64 %d21, %d1, %d20;
    st.global.v4.u32 [%d21], {{%r22, %r23, %r24, %r25}};
    add.u32 %r20, %r20, 16;
    setp.lt.u32 %p2, %r20, {count};
    @%p2 bra DUMP;"""


def launch(
    text: str, out: torch.Tensor, given: torch.Tensor, tensor_map: bytes = bytes(128), **options
) -> simulator.Report:
    params = tensor_map + struct.pack("QQ", out.data_ptr(), given.data_ptr())
    return simulator.run(text, block=[32], params=params, tensors=[out, given], **options)
