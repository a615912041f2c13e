"""Which kernels calls need, by making the calls without a GPU: none is compiled, none runs."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from ._extension import C
from ._numbers import integer
from ._targets import GPUS, HOPPER_TARGET


@dataclass(frozen=True, order=True)
class RecordedKernel:
    """Source of a kernel, and what it is to be compiled for: the recording's target, or another of the same GPU."""

    name: str
    text: str
    target: str


@dataclass
class Recording:
    """What `record` found: complete when its block has ended."""

    target: str
    kernels: list[RecordedKernel] = field(default_factory=list)


@dataclass(frozen=True)
class Machine:
    """A GPU that need not be there: as `record` takes it."""

    target: str = HOPPER_TARGET
    num_sms: int | None = None
    gpu: str | None = None


def placeholder(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of any shape and dtype on the CPU for recorded calls: its memory is only reserved, and never touched."""
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    if size == 0:
        return torch.empty(shape, dtype=dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"shape must be one that addresses can tell apart, got {[*shape]} of {dtype}: {error}"
        ) from None
    return torch.frombuffer(memory, dtype=torch.uint8).view(dtype).view(shape)


def sms_of(target: str, num_sms: int | None, gpu: str | None) -> int:
    """SMs of a GPU that is not there: so many, or all of the GPU of this name, or of the target's first one."""
    if target not in GPUS:
        raise ValueError(f"target must be one of {', '.join(GPUS)}, got {target!r}")
    most = GPUS[target].sms if gpu is None else int(C.card_facts(gpu)["num_sms"])
    return most if num_sms is None else integer("num_sms", num_sms, smallest=1)


@contextmanager
def record(target: str, num_sms: int | None = None, gpu: str | None = None) -> Iterator[Recording]:
    """Take note of the kernels that calls need on a GPU which is not there, instead of running the calls.

    In the `with` block, this thread's calls on CPU tensors are checked and planned as on a GPU of `target`, by the
    simulator's settings (`set_batch_invariant(True, "cpu")`, ...). No tensor's values are read or written, so
    `placeholder` will do for all of them.

        tokens, weight, out = (jit.placeholder(*s, dtype=torch.bfloat16) for s in ((4096, K), (N, K), (4096, N)))
        with deep_gemm.jit.record("sm_90a") as recording:
            for m in (1, 64, 4096):
                deep_gemm.bf16_gemm_nt(tokens[:m], weight, out[:m])
        deep_gemm.jit.compile_recorded(recording)

    Args:
        target: "sm_90a", as `get_target` says it for that GPU.
        num_sms: SMs of that GPU; by default all of `gpu`.
        gpu: its name, as the driver says it ("NVIDIA H100 80GB HBM3"), since configs are chosen by a GPU's clock,
            memory and tensor cores. By default the first GPU of the target (`python -m deep_gemm doctor`).

    Raises:
        ValueError: there are no kernels for the target, the GPU is not known, or this thread records already.
    """
    recording = Recording(target)
    recorder = C.open_recorder(target, sms_of(target, num_sms, gpu), gpu or "")
    try:
        C.record_thread(recorder)
        try:
            yield recording
        finally:
            C.record_thread(0)
        while kernel := C.take_recorded(recorder):
            recording.kernels.append(RecordedKernel(kernel["name"], kernel["text"], kernel["target"]))
    finally:
        C.close_recorder(recorder)
