"""What a program sets once and every later call obeys.

Settings belong to one device: torch's current CUDA device, or the simulator where there is no GPU; `device="cpu"`
names the simulator, `device="cuda:1"` another GPU. They take effect with the next call, in all threads. The
alignment of contiguous layouts is different: it says how tensors are laid out, so one value holds for the whole
process.
"""

from __future__ import annotations

import torch

from ._extension import C

__all__ = [
    "get_batch_invariant",
    "get_k_alignment_for_contiguous_layout",
    "get_m_alignment_for_contiguous_layout",
    "get_mk_alignment_for_contiguous_layout",
    "get_num_sms",
    "get_pdl",
    "get_tc_util",
    "get_theoretical_mk_alignment_for_contiguous_layout",
    "set_batch_invariant",
    "set_block_size_multiple_of",
    "set_ignore_compile_dims",
    "set_mk_alignment_for_contiguous_layout",
    "set_num_sms",
    "set_pdl",
    "set_tc_util",
]

DeviceLike = torch.device | str | int | None

_K_BLOCK = 128  # elements of K that share a scale


def _where(device: DeviceLike) -> tuple[bool, int]:
    """(is it the simulator, index)."""
    if device is None:
        if not torch.cuda.is_available():
            return True, 0
        return False, torch.cuda.current_device()
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type == "cpu":
        return True, 0
    if device.type != "cuda":
        raise ValueError(f"device must be a CUDA device or 'cpu' (the simulator), but is {device}")
    return False, torch.cuda.current_device() if device.index is None else device.index


def _set(name: str, value: int, device: DeviceLike) -> None:
    C.set_call_setting(*_where(device), name, value)


def _get(name: str, device: DeviceLike) -> int:
    return C.get_call_setting(*_where(device), name)


def set_num_sms(num_sms: int, device: DeviceLike = None) -> None:
    """Use at most this many SMs, and leave the others to what runs beside: communication, another stream."""
    simulated, index = _where(device)
    available = C.device_facts(simulated, index)["num_sms"]
    if not 1 <= num_sms <= available:
        raise ValueError(f"num_sms must be between 1 and the {available} SMs of the device, but is {num_sms}")
    # All of them is no limit: the simulator's number of SMs may change later.
    C.set_call_setting(simulated, index, "num_sms", 0 if num_sms == available else num_sms)


def get_num_sms(device: DeviceLike = None) -> int:
    """SMs that calls may use: all of the device, unless `set_num_sms` said less."""
    simulated, index = _where(device)
    available = int(C.device_facts(simulated, index)["num_sms"])
    limit = C.get_call_setting(simulated, index, "num_sms")
    return min(limit, available) if limit else available


def set_tc_util(percent: int, device: DeviceLike = None) -> None:
    """Keep the tensor cores busy for at most this share of the time (1 to 100), to stay within a power limit.

    Each share has its own kernels.
    """
    _set("tc_util", percent, device)


def get_tc_util(device: DeviceLike = None) -> int:
    """The share that `set_tc_util` set; 100 at first."""
    return _get("tc_util", device)


def set_pdl(enabled: bool, device: DeviceLike = None) -> None:
    """Programmatic dependent launch: a kernel may set itself up while the preceding one of its stream still runs.

    Nothing that the preceding kernel may write is read before it has ended, and nothing is written, so results are the
    same after any kernel. On at first (with drivers of CUDA 12.3 or later; older ones ignore it).
    """
    _set("pdl", int(enabled), device)


def get_pdl(device: DeviceLike = None) -> bool:
    """Whether programmatic dependent launch is on."""
    return bool(_get("pdl", device))


def set_ignore_compile_dims(ignore: bool, device: DeviceLike = None) -> None:
    """Compile no extents in, whatever a call's `compiled_dims` says: fewer kernels, each serving more shapes."""
    _set("ignore_compile_dims", int(ignore), device)


def set_block_size_multiple_of(
    block_m: int | tuple[int, int], block_n: int | None = None, device: DeviceLike = None
) -> None:
    """Choose only tiles whose extents along M and along N are multiples of these.

    One number serves for both; a pair, or two numbers, tell them apart. A call that no tile can serve then is refused.
    1 lifts the restriction.
    """
    if isinstance(block_m, int):
        pair = (block_m, block_m if block_n is None else block_n)
    elif block_n is not None:
        raise TypeError("give one number, a pair, or two numbers")
    else:
        pair = (int(block_m[0]), int(block_m[1]))
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
    _set("batch_invariant", int(enabled), device)


def get_batch_invariant(device: DeviceLike = None) -> bool:
    """Whether `set_batch_invariant` is on."""
    return bool(_get("batch_invariant", device))


def set_mk_alignment_for_contiguous_layout(alignment: int) -> None:
    """Say to which multiple of rows the experts of contiguous (and psum) layouts are aligned.

    128 at first; 64, or any other multiple of 8, is legal. Holds for the whole process. A smaller alignment means less
    padding and smaller tiles.
    """
    C.set_m_alignment(alignment)


def get_mk_alignment_for_contiguous_layout() -> int:
    """The multiple of rows at which every expert of a contiguous layout must start."""
    return C.get_m_alignment()


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m: int | None = None) -> int:
    """The alignment that should serve experts of about `expected_m` rows best.

    64 where that saves half of the padding, else 128, which has the fastest tiles.
    """
    return 64 if expected_m is not None and expected_m <= 64 else 128


def get_m_alignment_for_contiguous_layout() -> int:
    """Older name of `get_mk_alignment_for_contiguous_layout`."""
    return get_mk_alignment_for_contiguous_layout()


def get_k_alignment_for_contiguous_layout() -> int:
    """The multiple of K at which groups of K-grouped calls should end: one block of scales."""
    return _K_BLOCK
