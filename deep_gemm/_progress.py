"""Progress of what takes long, on stderr: how far, how fast, how long still. Nothing where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")


def progress(items: Iterable[Item], doing: str, unit: str, total: int, show: bool = True) -> tqdm[Item]:
    """The items, with a bar that says what is done with them and advances with each; it goes when they are through."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc,type-arg,unused-ignore]
        monitor_interval = 0  # no thread that watches bars: a process that forks should have none

    hidden = None if show else True  # None: tqdm asks whether stderr is a terminal
    return Bar(items, doing, total, unit=f" {unit}", disable=hidden, leave=False, dynamic_ncols=True)
