"""What a program sets once and every later call obeys.

A setting holds for every device of the process, the simulator too, whichever was current when it was set; with
`device` it holds for that one only (`"cuda:1"`, or `"cpu"` for the simulator), until it is set for all again. Reading
tells what holds for `device`, else for torch's current CUDA device, or for the simulator where there is no GPU. They
take effect with the next call, in all threads, and neither setting nor reading them starts CUDA. (Three exceptions:
`get_num_sms` has to ask the GPU while no limit is set, `get_target` while none was chosen, and
`get_theoretical_mk_alignment_for_contiguous_layout` which architecture it is.) The alignment of contiguous layouts says
how tensors are laid out and is no device's: one value holds for the whole process. What cannot be set raises ValueError
or TypeError.
"""

from __future__ import annotations

import torch

from . import simulator
from ._extension import C
from ._numbers import flag, integer

__all__ = [
    "get_batch_invariant",
    "get_compile_mode",
    "get_deterministic_algorithms",
    "get_fast_accumulation",
    "get_fp32_scales",
    "get_k_alignment_for_contiguous_layout",
    "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout",
    "get_num_sms",
    "get_pdl",
    "get_target",
    "get_tc_util",
    "get_theoretical_mk_alignment_for_contiguous_layout",
    "set_batch_invariant",
    "set_block_size_multiple_of",
    "set_compile_mode",
    "set_fast_accumulation",
    "set_fp32_scales",
    "set_ignore_compile_dims",
    "set_mk_alignment_for_contiguous_layout",
    "set_num_sms",
    "set_pdl",
    "set_target",
    "set_tc_util",
    "shutdown",
    "use_deterministic_algorithms",
]

DeviceLike = torch.device | str | int | None

_ALL_OF_THE_TIME = 100  # percent

# Of tokens, on sm100, with two accumulators in tensor memory.
_TILE_STEP, _TALLEST_TILE = 32, 224

_EVERY_GPU = -1
_SIMULATORS_TARGET = "sm_90a"


def _where(device: DeviceLike) -> tuple[bool, int]:
    """(is it the simulator, index). CUDA is not started for it; until it has, torch's current GPU is the first."""
    if device is None:
        # Counting asks NVML, which is_available() does not.
        if torch.cuda.device_count() == 0:
            return True, 0
        device = "cuda"
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type == "cpu":
        return True, 0
    if device.type != "cuda":
        raise ValueError(f"device must be a CUDA device or 'cpu' (the simulator), got {device}")
    if device.index is not None:
        return False, device.index
    return False, torch.cuda.current_device() if _cuda_has_started() else 0


def _cuda_has_started() -> bool:
    return bool(torch.cuda.is_initialized())


def _set(name: str, value: int, device: DeviceLike) -> None:
    if device is None:
        C.set_call_setting_everywhere(name, value)
    else:
        C.set_call_setting(*_where(device), name, value)


def _get(name: str, device: DeviceLike) -> int:
    return int(C.get_call_setting(*_where(device), name))


def set_num_sms(num_sms: int, device: DeviceLike = None) -> None:
    """Use at most `num_sms` SMs, and leave the others to what runs beside: communication, another stream.

    0 lifts the limit. More than a device has is no limit there.
    """
    _set("num_sms", integer("num_sms", num_sms), device)


def get_num_sms(device: DeviceLike = None) -> int:
    """SMs that calls may use: all of the device, unless `set_num_sms` said less."""
    simulated, index = _where(device)
    limit = int(C.get_call_setting(simulated, index, "num_sms"))
    if limit and not simulated and not _cuda_has_started():
        return limit  # how many there are is not known yet, and asking would start CUDA
    available = int(C.device_facts(simulated, index)["num_sms"])
    return min(limit, available) if limit else available


def set_tc_util(percent: int, device: DeviceLike = None) -> None:
    """Keep the tensor cores busy for at most `percent` of the time (1 to 100), to stay within a power limit.

    Each share has its own kernels. 0 goes back to 100.
    """
    _set("tc_util", integer("percent", percent) or _ALL_OF_THE_TIME, device)


def get_tc_util(device: DeviceLike = None) -> int:
    """The share that `set_tc_util` set; 100 at first."""
    return _get("tc_util", device)


def set_pdl(enabled: bool, device: DeviceLike = None) -> None:
    """Programmatic dependent launch: a kernel may set itself up while the preceding one of its stream still runs.

    Nothing that the preceding kernel may write is read before it has ended, and nothing is written, so results are the
    same after any kernel. On at first (with drivers of CUDA 12.3 or later; older ones ignore it).
    """
    _set("pdl", flag("enabled", enabled), device)


def get_pdl(device: DeviceLike = None) -> bool:
    """Whether programmatic dependent launch is on."""
    return bool(_get("pdl", device))


def set_target(target: str | None, device: DeviceLike = None) -> None:
    """Compile for an older GPU than the device is, as "sm_80", so that the kernels of that one run on this one.

    For tests and measurements of kernels whose GPU is not at hand: the device's own target is the fastest. A GPU then
    says that it is the older one, in everything that depends on that: which formats have kernels, how scales lie, how
    much shared memory a block may have. SMs and L2 are its own. Code for the older GPU is kept as PTX, which the driver
    translates when it is loaded (as machine code where the device runs that: sm_80 and sm_86 on sm_89).

    None goes back to the device's own target. Targets that end in a letter (sm_90a) run on their own GPUs only: a B200,
    whose own is sm_100f, may have sm_100a, and GPUs of 12.0 and 12.1 may share sm_120f. The environment's DG_TARGET
    holds until the first call. For the simulator (`"cpu"`, or no `device`), this is
    `simulator.set_options(target=...)`, which takes any target, and None is "sm_90a"; the last call of either holds,
    and DG_SIM_TARGET goes before DG_TARGET. Tensors that were laid out for one target (packed weights, transformed
    scales) may be refused under another.

    Raises:
        ValueError: there are no kernels for this target, or a GPU in use cannot run its code. Nothing has changed then.
            A GPU that has not been used yet refuses when it is.
    """
    if target is not None and not isinstance(target, str):
        raise TypeError(f"target must be a name like 'sm_80', or None, got {target!r}")
    simulated, index = (True, _EVERY_GPU) if device is None else _where(device)
    if device is None or not simulated:
        C.choose_target(index, target or "")
    if simulated:
        simulator.set_options(target=target or _SIMULATORS_TARGET)


def get_target(device: DeviceLike = None) -> str:
    """The target that a device's kernels are compiled for: its own, unless `set_target` or DG_TARGET chose another."""
    simulated, index = _where(device)
    chosen = "" if simulated else C.chosen_target(index)
    return chosen or str(C.device_facts(simulated, index)["target"])


def set_ignore_compile_dims(ignore: bool, device: DeviceLike = None) -> None:
    """Whether to ignore `compiled_dims` of calls and compile no extents in: fewer kernels, each serving more shapes."""
    _set("ignore_compile_dims", flag("ignore", ignore), device)


def set_block_size_multiple_of(
    block_m: int | tuple[int, int] | None = None,
    block_n: int | None = None,
    device: DeviceLike = None,
    *,
    value: int | tuple[int, int] | None = None,
) -> None:
    """Choose only tiles whose extents along M and along N are multiples of these.

    `block_m` alone serves for both; a pair, or `block_m` and `block_n`, tell them apart. A call that no tile can serve
    then is refused. 1 lifts the restriction. `value` is SGLang's name of the first.
    """
    if value is not None:
        if block_m is not None:
            raise TypeError(f"give block_m or value, one of them, got block_m={block_m} and value={value}")
        block_m = value
    if isinstance(block_m, (tuple, list)):
        if block_n is not None or len(block_m) != 2:
            raise TypeError(f"give one number, a pair, or two numbers, but not {block_m} and {block_n}")
        block_m, block_n = block_m
    pair = (integer("block_m", block_m), integer("block_n", block_m if block_n is None else block_n))
    if not all(1 <= value <= 256 for value in pair):
        raise ValueError(f"tiles have extents up to 256, so multiples of {pair} do not exist")
    for name, value in zip(("block_m_multiple_of", "block_n_multiple_of"), pair, strict=True):
        _set(name, value, device)


def set_batch_invariant(enabled: bool, device: DeviceLike = None) -> None:
    """Promise that a row's result depends on nothing but that row, the weights, N and K.

    It depends neither on M nor on the row's position or on other rows. Calls grouped along M keep that promise always.
    Dense calls break it for speed, by splitting K: with few rows of all tiles, with many of those that would leave most
    of a last wave of tiles idle. With scales per row of both operands (recipe (1, 1, 128)) dense calls and K groups
    also break it where the tensor cores multiply scales, whose products' last bits are others. This forbids the first,
    and leaves scales to the tensor cores in all gradients (K groups, and calls whose C is an FP32 D), in no other
    calls. Off at first.
    """
    global _invariant_by_determinism
    _set("batch_invariant", flag("enabled", enabled), device)
    _invariant_by_determinism = False


def get_batch_invariant(device: DeviceLike = None) -> bool:
    """Whether `set_batch_invariant` is on."""
    return bool(_get("batch_invariant", device))


def set_fast_accumulation(enabled: bool, device: DeviceLike = None) -> None:
    """Let Hopper's tensor cores add up all of K where FP8 is multiplied by packed weights whose rows have one scale.

    Their FP8 sums keep some 13 bits, and lose more the longer K is (the table of errors in docs/low_precision.md), so
    each 128 of K are added to FP32 sums otherwise. It holds for weights with `near_scales`, that is of one scale for
    each row, or of powers of two that are within 2048 of each other in each row (MXFP4), for tokens with one scale
    each, and in tiles of 64 tokens and more: a row's bits then depend on other rows. Other products, products in
    batch-invariant mode, and other GPUs, whose sums are FP32, do what they always do. Off at first.
    """
    _set("fast_accumulation", flag("enabled", enabled), device)


def get_fast_accumulation(device: DeviceLike = None) -> bool:
    """Whether `set_fast_accumulation` is on."""
    return bool(_get("fast_accumulation", device))


def set_fp32_scales(enabled: bool, device: DeviceLike = None) -> None:
    """On SM100, multiply FP32 scales of FP8 operands as they are, as `disable_ue8m0_cast=True` does for one call.

    For functions that have no such argument too: K-grouped ones and `fp8_einsum`. Such kernels add sums of 128 of K up
    in registers, as Hopper's do, and take any FP32 scale, for every 128 of K. Off, SM100 wants powers of two, which its
    tensor cores multiply. Calls in which both operands have packed exponents (int32) are not touched, nor are other
    GPUs, which multiply FP32 scales always. At first it is what DG_FP32_SCALES says: off.
    """
    _set("fp32_scales", flag("enabled", enabled), device)


def get_fp32_scales(device: DeviceLike = None) -> bool:
    """Whether `set_fp32_scales` is on."""
    return bool(_get("fp32_scales", device))


def set_mk_alignment_for_contiguous_layout(alignment: int) -> None:
    """Say to which multiple of rows the experts of contiguous (and psum) layouts are aligned.

    128 at first; 64, or any other multiple of 8, is legal. Holds for the whole process. A smaller alignment means less
    padding and smaller tiles.
    """
    C.set_m_alignment(integer("alignment", alignment))


def get_mk_alignment_for_contiguous_layout() -> int:
    """The multiple at which every expert's rows start in a contiguous layout (and every group's K in a psum layout)."""
    return C.get_m_alignment()


# Older names.
get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout


def get_theoretical_mk_alignment_for_contiguous_layout(
    expected_m: int | None = None, num_groups: int | None = None
) -> int:
    """The alignment that should serve experts of about `expected_m` rows best; 128 where nobody knows how many.

    With `num_groups`, `expected_m` counts the rows of so many experts together.

    64 where that saves half of the padding, else 128, which has the fastest tiles; on B200 and B300 the least
    multiple of 32 up to 224 with which an expert's rows fill as few tiles as they can. (Torch's current device is
    asked which of them it is, which starts CUDA.)
    """
    groups = 1 if num_groups is None else max(integer("num_groups", num_groups, smallest=0), 1)
    if expected_m is None:
        return 128
    rows = -(-integer("expected_m", expected_m, smallest=0) // groups)
    if C.device_facts(*_where(None))["arch"] != "sm100":
        return 64 if rows <= 64 else 128
    tiles = max(-(-rows // _TALLEST_TILE), 1)
    return max(-(-rows // (tiles * _TILE_STEP)), 1) * _TILE_STEP


_invariant_by_determinism = False  # and not by whom set_batch_invariant was called


def use_deterministic_algorithms(enabled: bool = True) -> None:
    """Promise equal bits of a row whatever else is in its batch, as DeepGEMM's clients mean it: `set_batch_invariant`.

    Equal bits from run to run are there always. False takes back what True did, not what
    `set_batch_invariant` did. Who calls this around each product (SGLang's batch-invariant mode does) pays for a
    look-up in each: say `set_batch_invariant(True)` once, and it does not.
    """
    global _invariant_by_determinism
    if flag("enabled", enabled):
        if not get_batch_invariant():
            set_batch_invariant(True)
            _invariant_by_determinism = True
    elif _invariant_by_determinism:
        set_batch_invariant(False)


def set_compile_mode(mode: int) -> None:
    """With mode 1, calls compile and load their kernels and launch nothing: `d` stays as it is. At first 0: they run.

    For warming up, where `precompile` does not fit: whoever calls the products with tensors of all sizes that will come
    finds each kernel compiled afterwards. Holds for the whole process. Calls with nothing to sum (K = 0) write `d` even
    so, and DG_AUTOTUNE measures nothing.
    """
    C.set_compile_only(bool(flag("mode", mode)))


def get_compile_mode() -> int:
    """1 where calls compile only, else 0: see `set_compile_mode`."""
    return int(C.get_compile_only())


def shutdown() -> None:
    """Nothing: between calls the library holds no handle and no workspace. Kernels stay loaded, later calls run."""


def get_deterministic_algorithms() -> bool:
    """Whether a row's bits depend on nothing else in its batch: `get_batch_invariant`."""
    return get_batch_invariant()
