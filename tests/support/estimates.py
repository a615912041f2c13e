"""What configs would cost with other constants in the cost model (csrc/config/ARCH/cost.hpp)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from field_calls import Fields, recorded

from deep_gemm._extension import C


class Estimates:
    """Of calls' legal configs, which are found once: to be asked again and again."""

    def __init__(self) -> None:
        self._key = C.new_estimates()

    def __del__(self) -> None:
        C.delete_estimates(self._key)

    def add(
        self, grouping: str, fields: Fields, target: str, configs: Sequence[str] = (), gpu: str | None = None
    ) -> dict[str, float]:
        """Those of these configs (of all, where there are none) that are legal for a call, by their text, with their
        cost in microseconds."""
        with recorded(grouping, fields, target, gpu):
            return dict(C.add_to_estimates(self._key, configs))

    def us(self, constants: Mapping[str, float]) -> array[float]:
        """Of all configs, as they were added. Constants that are not named stay as they are."""
        return array("d", C.estimates(self._key, constants))


def constants_of(grouping: str, fields: Fields, target: str, gpu: str | None = None) -> dict[str, float]:
    """What the cost model goes by for the call."""
    with recorded(grouping, fields, target, gpu):
        return dict(C.recorded_constants())


def estimates_of(grouping: str, fields: Fields, target: str, constants: Mapping[str, float]) -> dict[str, float]:
    """Of one call's legal configs, by their text."""
    estimates = Estimates()
    configs = estimates.add(grouping, fields, target)
    return dict(zip(configs, estimates.us(constants), strict=True))


def text_of(config: Sequence[int]) -> str:
    """A config as it is named here: of swap_ab, rows, columns, the cluster's three, warpgroups that share K."""
    swapped, rows, cols, *cluster, k_warpgroups = config
    shape = "x".join(map(str, cluster))
    return f"{'swapped' if swapped else 'straight'} {rows}x{cols} cluster {shape} k_warpgroups {k_warpgroups}"
