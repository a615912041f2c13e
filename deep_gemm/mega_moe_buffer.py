"""Where the tokens of a whole MoE layer are handed over (mega_moe.py)."""

from __future__ import annotations

from typing import Any

import torch

from . import _fallback
from ._compiled import alignment_now
from ._extension import C
from ._numbers import integer
from .mega_moe_ranks import HEAD_BYTES, Group, SharedMemory
from .routing import most_rows

__all__ = ["SM90SymmBuffer", "get_symm_buffer_for_mega_moe", "get_symm_buffer_for_sm90_mega_moe"]

BLOCK = 128  # rows and K that share a scale
_TOKENS = 128  # that a buffer has room for a multiple of
_MOST_CHOICES, _MOST_INTERMEDIATE = 32, 4096  # as the public API has them


class SM90SymmBuffer:
    """What tokens are handed over in: views of one piece of memory, zeroed at first.

    Of `num_max_tokens_per_rank` tokens each: `x` float8_e4m3fn `[tokens, hidden]`, `x_sf` float32 `[tokens, hidden /
    128]`, `topk_idx` int64 and `topk_weights` float32 `[tokens, num_topk]` (-1, or any number that is no expert's:
    none). Any number of layers of these sizes may share one, in the order of a stream. The arguments are as for
    `get_symm_buffer_for_sm90_mega_moe`.
    """

    def __init__(
        self,
        group: Group | None,
        num_experts: int,
        num_max_tokens_per_rank: int,
        num_topk: int,
        hidden: int,
        intermediate_hidden: int,
        use_fp8_dispatch: bool = True,
        activation: str = "swiglu",
        *,
        device: torch.device | str | None = None,
        persistent: bool | None = None,
        timeout_s: float = 100.0,
        tokens_at_once: int | None = None,
    ) -> None:
        ranks = 1 if group is None else group.size()
        if not use_fp8_dispatch:
            raise ValueError("use_fp8_dispatch must be True: tokens are handed over as E4M3 with scales")
        check_activation(activation)
        tokens = integer("num_max_tokens_per_rank", num_max_tokens_per_rank, smallest=1)
        self.num_experts = integer("num_experts", num_experts, smallest=1)
        if self.num_experts % ranks != 0:
            raise ValueError(f"num_experts must be a multiple of the {ranks} ranks of group, got {num_experts}")
        self.local_experts = self.num_experts // ranks
        self.num_topk = integer("num_topk", num_topk, smallest=1)
        if self.num_topk > _MOST_CHOICES:
            raise ValueError(f"num_topk must be at most {_MOST_CHOICES}, got {num_topk}")
        self.hidden = _whole_blocks("hidden", hidden)
        self.intermediate_hidden = _whole_blocks("intermediate_hidden", intermediate_hidden)
        if self.intermediate_hidden > _MOST_INTERMEDIATE:
            raise ValueError(f"intermediate_hidden must be at most {_MOST_INTERMEDIATE}, got {intermediate_hidden}")
        self.group, self.activation, self.use_fp8_dispatch = group, activation, True
        self.num_max_tokens_per_rank = tokens = -(-tokens // _TOKENS) * _TOKENS
        where = _device_of(device)
        if (arch := _arch_of(where)) == "sm100":
            raise NotImplementedError(
                f"an SM90SymmBuffer must be on a GPU with kernels for SM80 or SM90, got {arch}, whose products take "
                "other scales: use deep_gemm.nn.GroupedExperts"
            )
        if persistent and arch != "sm90":
            raise ValueError(f"persistent must be False on a GPU with kernels for {arch}: only SM90 has such a kernel")
        if tokens_at_once is not None:
            if ranks == 1:
                raise ValueError(f"tokens_at_once must be None for one rank, got {tokens_at_once}")
            tokens_at_once = integer("tokens_at_once", tokens_at_once, smallest=1)
        self.tokens_at_once = tokens_at_once
        if not isinstance(timeout_s, (int, float)) or not 0 < timeout_s < 1e9:
            raise ValueError(f"timeout_s must be a number of seconds above 0, got {timeout_s!r}")
        self.arch = arch  # of the kernels that calls take
        self.persistent = persistent
        # Counters of the one launch that both products are; None: they are launched one after the other.
        self.ready: torch.Tensor | None = None
        self.pulled: torch.Tensor | None = None  # of rows that come from other ranks
        if persistent or (persistent is None and ranks > 1 and arch == "sm90"):
            self.ready, self.pulled = (self._counters(tokens, ranks, where) for _ in range(2))
        # By falling alignment, so that none needs a gap.
        parts: dict[str, tuple[torch.dtype, int]] = {
            "topk_idx": (torch.int64, self.num_topk),
            "topk_weights": (torch.float32, self.num_topk),
            "x_sf": (torch.float32, self.hidden // BLOCK),
            "x": (torch.float8_e4m3fn, self.hidden),
        }
        sizes = [tokens * columns * dtype.itemsize for dtype, columns in parts.values()]
        self.shared: SharedMemory | None = None
        if group is not None and ranks > 1:
            # Results come to a token's slots, behind the tokens.
            results = tokens * self.num_topk * self.hidden * 2
            like = self.num_experts, tokens, self.num_topk, self.hidden, self.intermediate_hidden
            places, at = {"results": HEAD_BYTES + sum(sizes)}, HEAD_BYTES
            for name, size in zip(parts, sizes, strict=True):
                places[name], at = at, at + size
            self.shared = SharedMemory(group, HEAD_BYTES + sum(sizes) + results, where, like, places, timeout_s)
            self.buffer: torch.Tensor | None = self.shared.part[HEAD_BYTES:]
        else:
            self.buffer = torch.zeros(sum(sizes), dtype=torch.int8, device=where)
        views = self.buffer[: sum(sizes)].split(sizes)
        for (name, (dtype, columns)), view in zip(parts.items(), views, strict=True):
            setattr(self, name, view.view(dtype).view(tokens, columns))

    def _counters(self, tokens: int, ranks: int, device: torch.device) -> torch.Tensor:
        """One for each 8 rows that choices of so many tokens of all ranks may need."""
        rows = most_rows(tokens * ranks * self.num_topk, self.local_experts, alignment_now())
        return torch.zeros(-(-rows // 8), dtype=torch.int32, device=device)

    x: torch.Tensor
    x_sf: torch.Tensor
    topk_idx: torch.Tensor
    topk_weights: torch.Tensor

    def destroy(self) -> None:
        """Lets go of the memory; later calls with this buffer are refused."""
        self.buffer = self.group = self.ready = self.pulled = self.shared = None
        for name in ("x", "x_sf", "topk_idx", "topk_weights"):
            setattr(self, name, None)


def get_symm_buffer_for_sm90_mega_moe(
    group: Group | None,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    use_fp8_dispatch: bool = True,
    activation: str = "swiglu",
    *,
    device: torch.device | str | None = None,
    persistent: bool | None = None,
    timeout_s: float = 100.0,
    tokens_at_once: int | None = None,
) -> SM90SymmBuffer:
    """A buffer with room for at least so many tokens.

    Args:
        group: None, or ranks whose GPUs reach each other's memory (one host, NVLink), at most 32: rank r has experts
            `r * num_experts / ranks` and on. All of them make the buffer together. Or a rank of `simulator.ranks`.
        num_experts: of all ranks, at most 1024.
        num_max_tokens_per_rank: is rounded up to a multiple of 128.
        num_topk: slots of a token, at most 32.
        hidden, intermediate_hidden: multiples of 128, the second at most 4096.
        use_fp8_dispatch, activation: True and 'swiglu'.
        device: by default the current GPU, or the CPU where there is none (calls are simulated then).
        persistent: whether `fp8_mega_moe` launches both products as one kernel, in which tiles of `down` begin as their
            rows are there. Of several ranks it also brings the rows, whose experts begin as they come, and sends
            results to their tokens. None: of several ranks on SM90, with weights of E4M3.
        timeout_s: how long a call waits for another rank before it says so and traps.
        tokens_at_once: None, or so many tokens of each rank, of several, have their rows here at the same time. In one
            launch `tokens_at_once * ranks * num_topk` rows, rounded up to the alignment, are a ring: a row comes when
            the one that was there before has been multiplied. In separate launches experts are multiplied once for
            each part, whose rows, with what experts' alignment adds, are all that a call makes room for. The same bits.

    Raises:
        ValueError, TypeError: an argument cannot be right.
        NotImplementedError: the device is of SM100.
    """
    sizes = num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden
    more: dict[str, Any] = {"device": device, "persistent": persistent, "timeout_s": timeout_s}
    return SM90SymmBuffer(group, *sizes, use_fp8_dispatch, activation, tokens_at_once=tokens_at_once, **more)


def get_symm_buffer_for_mega_moe(
    group: Group | None,
    num_experts: int,
    num_max_tokens_per_rank: int,
    num_topk: int,
    hidden: int,
    intermediate_hidden: int,
    num_shared_experts: int = 0,
    use_fp8_dispatch: bool | None = None,
    mma_type: str = "fp8xfp4",
    activation: str = "swiglu",
    **more: Any,
) -> Any:
    """`get_symm_buffer_for_sm90_mega_moe` under its name for all architectures, for tokens in E4M3.

    On SM100 it is another installation's, where `DG_FALLBACK` names one, and raises NotImplementedError otherwise.

    Args:
        group, num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden, activation: as there.
        num_shared_experts: 0.
        use_fp8_dispatch: None or True.
        mma_type: 'fp8x' and anything: of the tokens, since weights come with each call.
        more: `device`, `persistent`, `timeout_s`, `tokens_at_once`.

    Raises:
        ValueError, TypeError, NotImplementedError: as there.
    """
    sizes = num_experts, num_max_tokens_per_rank, num_topk, hidden, intermediate_hidden
    is_sm100 = _arch_of(_device_of(more.get("device"))) == "sm100"
    if is_sm100 and (other := _fallback.find("get_symm_buffer_for_mega_moe")) is not None:
        return other(group, *sizes, num_shared_experts, use_fp8_dispatch, mma_type, activation, **more)
    if num_shared_experts != 0:
        raise ValueError(f"num_shared_experts must be 0, got {num_shared_experts}: multiply them beside this layer")
    if not isinstance(mma_type, str) or not mma_type.startswith("fp8x"):
        raise ValueError(f"mma_type must be 'fp8xfp8' or 'fp8xfp4', for tokens in E4M3, got {mma_type!r}")
    return SM90SymmBuffer(group, *sizes, use_fp8_dispatch is not False, activation, **more)


def check_activation(activation: str) -> None:
    if activation != "swiglu":
        raise ValueError(f"activation must be 'swiglu', got {activation!r}")


def _whole_blocks(name: str, size: int) -> int:
    if integer(name, size, smallest=1) % BLOCK != 0:
        raise ValueError(f"{name} must be a multiple of {BLOCK}, got {size}")
    return size


def _device_of(device: torch.device | str | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def _arch_of(device: torch.device) -> str:
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return str(C.device_facts(False, index)["arch"])
    return str(C.device_facts(True, 0)["arch"])
