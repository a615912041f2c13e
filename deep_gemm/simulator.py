"""The PTX simulator that CPU tensors run on: its options, and what it found out.

    from deep_gemm import simulator
    with simulator.options(schedule="random", seed=7, hazards="report"):
        deep_gemm.fp8_gemm_nt(a, b, d)               # CPU tensors
    print(simulator.last_report())

The environment gives the first values, and is read once: DG_SIM_TARGET, DG_SIM_SCHEDULE, DG_SIM_SEED, DG_SIM_HAZARDS,
DG_SIM_RULES, DG_SIM_THREADS, DG_SIM_NUM_SMS. docs/simulator.md says what is modelled, and how to debug a kernel with
it. An option or argument that cannot be right raises ValueError or TypeError; text that does not compile, and a launch
that a GPU would refuse, RuntimeError.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ._extension import C
from ._numbers import integer
from ._simulated_ranks import SimulatedRanks

SCHEDULES = ("lazy", "eager", "random")
RULES = ("manual", "hardware")


@dataclasses.dataclass(frozen=True)
class Hazard:
    """Something a GPU would have got wrong, or may get wrong another time."""

    kind: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclasses.dataclass(frozen=True)
class BarrierEvent:
    """Something that happened at a barrier.

    `event` is one of: "init", "arrive" (`amount` arrivals, or threads), "expect" (so many bytes), "bytes" (so many
    came), "complete" (phase `amount` is over), "blocked" (a warp waits for phase `amount`), "pass" (it has seen that
    the phase is over).
    """

    time: int  #: warp instructions that its cluster had executed
    cluster: int
    block: int
    barrier: str  #: "mbarrier 0x400", "barrier 1" (`bar.sync 1`) or "cluster"
    event: str
    amount: int
    warp: int  #: of the block; -1 where a copy or product did it
    line: int  #: of the PTX text; 0 with no warp

    def __str__(self) -> str:
        by = f"warp {self.warp}, PTX line {self.line}" if self.warp >= 0 else ""
        return f"{self.time:8d}  {self.block:5d}  {self.barrier:16s}  {self.event:8s}  {self.amount:8d}  {by}".rstrip()


@dataclasses.dataclass(frozen=True)
class Report:
    """Outcome of one launch. `statistics["instructions"]` counts warp instructions by opcode."""

    kernel: str
    hazards: list[Hazard]
    statistics: dict[str, Any]
    timeline: list[BarrierEvent] = dataclasses.field(default_factory=list)  #: with `timeline=True`
    timeline_left_out: int = 0  #: events of clusters that had more than are kept (2^18 each)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {value}" for name, value in self.statistics.items() if not isinstance(value, dict))
        found = "\n\n".join(map(str, self.hazards)) if self.hazards else "no hazards"
        return f"{self.kernel}: {counts}\n{found}"

    def timeline_text(self, barrier: str = "") -> str:
        """The timeline as a table; of one barrier, if it is named as events name it."""
        head = f"{'time':>8s}  {'block':>5s}  {'barrier':16s}  {'event':8s}  {'amount':>8s}  by"
        events = [str(event) for event in self.timeline if barrier in ("", event.barrier)]
        more = [f"({self.timeline_left_out} more are left out)"] if self.timeline_left_out else []
        return "\n".join([head, *events, *more])


def _to_report(kernel: str, parsed: dict[str, Any]) -> Report:
    return Report(
        kernel,
        [Hazard(**hazard) for hazard in parsed["hazards"]],
        parsed["statistics"],
        [BarrierEvent(**event) for event in parsed["timeline"]],
        parsed["timeline_left_out"],
    )


def get_options() -> dict[str, Any]:
    """The options in force: target, num_sms, schedule, seed, hazards, rules, threads, timeline."""
    return dict(C.simulator_options())


def set_options(
    *,
    target: str | None = None,
    num_sms: int | None = None,
    schedule: str | None = None,
    seed: int | None = None,
    hazards: str | None = None,
    rules: str | None = None,
    threads: int | None = None,
    timeline: bool | None = None,
) -> None:
    """Change options for the whole process; those not given stay as they are.

    Args:
        target: the GPU to be, as "sm_90a" or "sm_100a".
        num_sms: how many SMs it has. A real H200 has 132; the default of 4 keeps persistent kernels persistent.
        schedule: when asynchronous copies and products take effect: "lazy" (as late as possible), "eager" (at once),
            "random" (as `seed` says, warps interleaved at random).
        seed: of the random schedule.
        hazards: "error" raises the first one, "report" collects them in the report.
        rules: "manual" finds all that the PTX manual does not promise; "hardware" lets pass what machines are known to
            do all the same, for kernels by others. docs/simulator.md lists it.
        threads: host threads for independent blocks; 0 for one per core.
        timeline: whether reports say what happened at barriers, and when.
    """
    given = {"target": target, "num_sms": num_sms, "schedule": schedule, "seed": seed, "hazards": hazards}
    given.update(rules=rules, threads=threads, timeline=timeline)
    merged = {**get_options(), **{name: value for name, value in given.items() if value is not None}}
    names = ("target", "num_sms", "schedule", "seed", "hazards", "rules", "threads", "timeline")
    C.set_simulator_options(*(merged[name] for name in names))


@contextlib.contextmanager
def options(**changes: Any) -> Iterator[None]:
    """`set_options` for the length of a `with` block. The options are those of the process, not of the thread."""
    before = get_options()
    set_options(**changes)
    try:
        yield
    finally:
        set_options(**before)


def reports() -> list[Report]:
    """Reports of the launches since `clear_reports`, oldest first; at most the last 64."""
    return [_to_report(entry["kernel"], entry["report"]) for entry in json.loads(C.simulator_reports())]


def last_report() -> Report | None:
    """Report of the latest launch on CPU tensors, also of one that raised; None before the first."""
    found = reports()
    return found[-1] if found else None


def clear_reports() -> None:
    """Forget all reports."""
    C.clear_simulator_reports()


def run(
    ptx: str,
    *,
    entry: str = "",
    grid: Sequence[int] = (1,),
    block: Sequence[int] = (32,),
    cluster: Sequence[int] = (1,),
    smem_bytes: int = 0,
    params: bytes = b"",
    tensors: Sequence[torch.Tensor] = (),
    inputs: Sequence[torch.Tensor] = (),
    schedule: str = "eager",
    seed: int = 0,
    hazards: str = "error",
    rules: str = "manual",
    threads: int = 1,
    timeline: bool = False,
) -> Report:
    """Run any PTX text: the library's own tests use it, and it helps to debug a kernel of yours.

    Args:
        ptx: the text, as `nvcc --ptx`, Triton or `compile_cuda` makes it.
        entry: which kernel; the first of the text if empty.
        grid: blocks, in one to three dimensions.
        block: threads of a block.
        cluster: blocks of a cluster.
        smem_bytes: dynamic shared memory of a block.
        params: the kernel's parameters, laid out as the kernel takes them; `parameters` makes them. Pointers are
            `tensor.data_ptr()`.
        tensors: memory that the kernel may read and write. Anything else is out of bounds.
        inputs: memory that it may only read.
        schedule, seed, hazards, rules, threads, timeline: as of `set_options`.

    Returns:
        The report. With hazards="error" the first hazard is raised as a RuntimeError instead.
    """
    memory = [*tensors, *inputs]
    text = C.simulator_run(
        ptx,
        entry,
        list(grid),
        list(block),
        list(cluster),
        smem_bytes,
        params,
        memory,
        [1] * len(tensors) + [0] * len(inputs),
        schedule,
        seed,
        hazards,
        rules,
        threads,
        timeline,
    )
    return _to_report(entry, json.loads(text))


@dataclasses.dataclass(frozen=True)
class DeviceLaunch:
    """What one of several devices runs: see `run`, whose arguments these are."""

    ptx: str
    entry: str = ""
    grid: Sequence[int] = (1,)
    block: Sequence[int] = (32,)
    cluster: Sequence[int] = (1,)
    smem_bytes: int = 0
    params: bytes = b""
    tensors: Sequence[torch.Tensor] = ()
    inputs: Sequence[torch.Tensor] = ()


def run_devices(
    launches: Sequence[DeviceLaunch],
    *,
    shared: Sequence[torch.Tensor],
    schedule: str = "eager",
    seed: int = 0,
    hazards: str = "error",
    rules: str = "manual",
) -> list[Report]:
    """Run a kernel on each of several devices at the same time, which share memory as GPUs do over NVLink.

        arena = [torch.zeros(64, dtype=torch.int32) for _ in range(2)]  # a part for each device: all reach all
        params = struct.pack("QQ", *(part.data_ptr() for part in arena))
        simulator.run_devices([DeviceLaunch(send, params=params), DeviceLaunch(receive, params=params)], shared=arena)

    Shared memory follows the PTX memory model: a write reaches others late, and two of them in either order, unless
    acquire and release patterns or fences, of scopes that include both threads, forbid it; hazards are what nothing
    orders ("race"), and strong operations whose scopes are too narrow ("scope"). docs/simulator.md has more.

    Args:
        launches: of each device one; all of their blocks are there from the beginning.
        shared: memory that all devices may read and write, by loads, stores, `atom` and `red` (copies of it are
            refused). Pointers are `tensor.data_ptr()`.
        schedule: "eager": reads see the latest write; "lazy": for some reads the oldest that is allowed; "random": any
            that is allowed, and devices take turns at random.
        seed, hazards, rules: as of `run`.

    Returns:
        A report for each device.
    """
    C.simulator_forget_devices()
    try:
        for launch in launches:
            C.simulator_add_device(
                launch.ptx,
                launch.entry,
                list(launch.grid),
                list(launch.block),
                list(launch.cluster),
                launch.smem_bytes,
                launch.params,
                [*launch.tensors, *launch.inputs],
                [1] * len(launch.tensors) + [0] * len(launch.inputs),
            )
        text = C.simulator_run_devices(list(shared), schedule, seed, hazards, rules)
    finally:
        C.simulator_forget_devices()
    return [_to_report(each["kernel"], each["report"]) for each in json.loads(text)]


def ranks(count: int) -> SimulatedRanks:
    """A group of ranks whose calls run at the same time, each on a device of its own.

        group = simulator.ranks(2)
        buffers = [deep_gemm.get_symm_buffer_for_sm90_mega_moe(rank, ...) for rank in group]
        for rank, buffer, y in zip(group, buffers, results):
            with rank:  # calls are noted
                deep_gemm.fp8_mega_moe(y, l1, l2, buffer)
        group.run(schedule="random", seed=3)

    A rank's launches run one behind the other, and each knows what those before it did; memory that ranks share follows
    the memory model, as of `run_devices`. Between ranks' `with` and `run`, tensors hold nothing yet.

    Args:
        count: of ranks, from 2 to 32.
    """
    return SimulatedRanks(integer("count", count, smallest=2))


def compile_cuda(source: str, target: str = "sm_90a", name: str = "kernel.cu") -> str:
    """PTX of CUDA C++ for `target`, by NVRTC (the library's compiler and cache); reports then name lines of the source.

    Headers of a CUDA toolkit are not there; those of deep_gemm/include are (`#include <deep_gemm/ptx/mbarrier.cuh>`).
    """
    stem = "".join(letter if letter.isalnum() else "_" for letter in name.rpartition("/")[2].partition(".")[0])
    return bytes(C.jit_compile(stem, f'#line 1 "{name}"\n{source}', target, "ptx")).decode()


def parameters(*arguments: torch.Tensor | bytes) -> bytes:
    """A kernel's parameters for `run`, each at a multiple of its size.

    Of tensors the addresses, of numbers the bytes that `struct.pack` makes.
    """
    made = b""
    for each in arguments:
        part = struct.pack("<Q", each.data_ptr()) if isinstance(each, torch.Tensor) else each
        made += bytes(-len(made) % len(part)) + part
    return made


_MAP_TYPES = {
    torch.uint8: 0,
    torch.int8: 0,
    torch.float8_e4m3fn: 0,
    torch.float8_e5m2: 0,
    torch.bfloat16: 1,
    torch.float16: 2,
    torch.float32: 3,
    torch.int32: 4,
}
_BITS_AND_TYPES = {"u4": (4, 5), "u4_spread": (4, 6), "u6_spread": (6, 7)}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


def tensor_map(tensor: torch.Tensor, box: Sequence[int], swizzle: int = 0, packed: str = "") -> bytes:
    """The 128 bytes of a tensor map over a CPU tensor, for the parameters of `run`.

    `box` is in the order of the tensor's own dimensions, the last one contiguous; `swizzle` is 0, 32, 64 or 128 bytes.
    `packed` says what a tensor of bytes holds: "u4", or "u4_spread" and "u6_spread", of which SM100 puts 16 into each
    16 bytes of shared memory; the last dimension of `box` then counts these.
    """
    strides = [stride * tensor.element_size() for stride in tensor.stride()]
    sizes, kind = list(tensor.shape), _MAP_TYPES[tensor.dtype]
    if packed:
        bits, kind = _BITS_AND_TYPES[packed]
        sizes[-1] = sizes[-1] * tensor.element_size() * 8 // bits
    return bytes(
        C.simulator_tensor_map(
            tensor.data_ptr(),
            kind,
            list(reversed(sizes)),
            list(reversed(strides))[1:],
            list(reversed(box)),
            _SWIZZLES[swizzle],
        )
    )
