"""What selection considered for a problem, read from the lines that `explain` prints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from devices import arch_of_gpu
from field_calls import explain

import deep_gemm
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS, HOPPER_TARGET

LINE = re.compile(
    r"(?P<frame>straight|swapped) (?P<rows>\d+)x(?P<cols>\d+) "
    r"cluster (?P<cluster_rows>\d+)x(?P<cluster_cols>\d+)x(?P<cluster_k>\d+) k_warpgroups (?P<k_warpgroups>\d+)"
    r"(?: preconvert (?P<preconvert>\w+))? threads (?P<threads>\d+) "
    r"stages (?P<stages>\d+) smem (?P<smem>\d+) ctas (?P<ctas>\d+) strip (?P<strip>\d+)"
    r"(?:: (?P<cost>\S+) us|: refused, (?P<rejection>.*))"
)

AHEAD = ["none", "a", "b"]  # as selection counts them


@dataclass
class Candidate:
    swapped: bool
    rows: int
    cols: int
    cluster_shape: tuple[int, int, int]
    threads: int
    k_warpgroups: int  # warpgroups that share rows and take K blocks in turn
    stages: int
    smem: int
    ctas: int
    strip: int  # blocks of M walked together
    cost: float | None
    rejection: str | None
    preconvert: str = "none"  # the operand that a kernel before the product converts: one of AHEAD

    @property
    def cluster(self) -> int:
        return math.prod(self.cluster_shape)


# Of configs that are refused where others serve better, and right nevertheless.
WASTEFUL = ("would be empty", "rows twice what the problem has")


def can_serve(candidate: Candidate) -> bool:
    """Whether a call may be forced to take it."""
    return candidate.rejection is None or candidate.rejection.endswith(WASTEFUL)


def target_of(device: torch.device) -> str:
    """What a dense problem of this device is selected for."""
    return deep_gemm.get_target(device)


def least_rows(device: torch.device) -> int:
    """Of the tiles of this device's architecture."""
    return 128 if target_of(device).startswith("sm_10") else 64


def candidates(
    m: int, n: int, k: int, num_sms: int = HOPPER_SMS, target: str = HOPPER_TARGET, **fields: int
) -> list[Candidate]:
    return parse(explain("dense", {"m": m, "n": n, "k": k, "num_sms": num_sms, **fields}, target))


def grouped_candidates(
    kind: str,
    groups: int,
    m: int,
    n: int,
    k: int,
    expected_m: int = 0,
    alignment: int = 128,
    num_sms: int = HOPPER_SMS,
) -> list[Candidate]:
    """`kind` is "m_contiguous", "m_psum" or "masked"; m is the height of one expert's matrix of a masked problem."""
    sizes = {"groups": groups, "m": m, "n": n, "k": k, "num_sms": num_sms}
    return parse(explain(kind, {**sizes, "expected_m": expected_m, "alignment": alignment}))


def parse(text: str) -> list[Candidate]:
    found = []
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        assert match, f"explain printed a line of another form: {line!r}"
        part = match.groupdict()
        found.append(
            Candidate(
                swapped=part["frame"] == "swapped",
                rows=int(part["rows"]),
                cols=int(part["cols"]),
                cluster_shape=tuple(int(part[f"cluster_{side}"]) for side in ("rows", "cols", "k")),
                threads=int(part["threads"]),
                k_warpgroups=int(part["k_warpgroups"]),
                stages=int(part["stages"]),
                smem=int(part["smem"]),
                ctas=int(part["ctas"]),
                strip=int(part["strip"]),
                cost=float(part["cost"]) if part["cost"] else None,
                rejection=part["rejection"],
                preconvert=part["preconvert"] or "none",
            )
        )
    return found


def with_tile(
    found: list[Candidate],
    swapped: bool,
    rows: int,
    cols: int,
    cluster_shape: tuple[int, int, int] = (1, 1, 1),
    k_warpgroups: int = 1,
    preconvert: str = "none",
) -> Candidate:
    """The candidate with this tile."""
    shape = (swapped, rows, cols, cluster_shape, k_warpgroups, preconvert)
    (one,) = (c for c in found if (c.swapped, c.rows, c.cols, c.cluster_shape, c.k_warpgroups, c.preconvert) == shape)
    return one


def straight(
    found: list[Candidate], rows: int, cols: int, cluster_shape: tuple[int, int, int] = (1, 1, 1)
) -> Candidate:
    return with_tile(found, False, rows, cols, cluster_shape)


def stands_in(device: torch.device) -> bool:
    """Whether it is a GPU that runs other kernels than Hopper's."""
    return device.type == "cuda" and arch_of_gpu() != "sm90"


@contextmanager
def forced_tile(
    device: torch.device,
    problem: tuple[int, int, int],
    swapped: bool,
    rows: int,
    cols: int,
    cluster: tuple[int, int, int] = (1, 1, 1),
    k_warpgroups: int = 1,
    preconvert: str = "none",
) -> Iterator[None]:
    """Serve calls of this M, N and K (of K groups: of 256) on this device with one tile.

    Most tests name Hopper's, and a GPU that stands in for another one leaves out what that has no such tile for.
    """
    where = (device.type == "cpu", device.index or 0)
    try:
        C.force_config(*where, *problem, int(swapped), rows, cols, *cluster, k_warpgroups, AHEAD.index(preconvert))
        yield
    except ValueError as error:
        if stands_in(device) and re.search("selection knows no such config|forced config cannot serve", str(error)):
            pytest.skip(f"{rows}x{cols} is a tile of Hopper's, and the GPU runs kernels of {arch_of_gpu()}: {error}")
        raise
    finally:
        C.force_config(*where, *problem, 0, 0, 0, 1, 1, 1, 1, 0)


@contextmanager
def forced(device: torch.device, m: int, n: int, k: int, candidate: Candidate) -> Iterator[None]:
    """The same with the candidate of a problem."""
    tile = (candidate.swapped, candidate.rows, candidate.cols, candidate.cluster_shape, candidate.k_warpgroups)
    with forced_tile(device, (m, n, k), *tile, candidate.preconvert):
        yield
