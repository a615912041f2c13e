"""Clusters are given tiles by the GPC that they find themselves in (docs/kernels/tiles.md, "Which SMs a cluster
gets")."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from candidates import forced_tile
from devices import FEW
from grouped_inputs import contiguous, masked, run_experts
from inputs import GuardedOutput, random_blocks, random_rows
from k_grouped_inputs import groups as k_groups
from k_grouped_inputs import run as run_k_groups
from reference import assert_matches, product_nt

import deep_gemm
from deep_gemm import simulator
from deep_gemm._extension import C
from deep_gemm._targets import HOPPER_SMS

SEEN = Path(__file__).resolve().parents[1] / "data" / "cta_order.json"


def seen() -> list[tuple[int, list[tuple[int, ...]]]]:
    """Launches as they were seen: the size of a cluster, and the SMs of each cluster in the order of its number."""
    launches = json.loads(SEEN.read_text())["launches"]
    return [
        (size, list(zip(*[iter(launch["sms"])] * size, strict=True)))
        for launch in launches
        if (size := launch["cluster"])
    ]


def gpcs(launches: list[tuple[int, list[tuple[int, ...]]]]) -> dict[int, int]:
    """A number for the GPC of each SM: clusters hold SMs of one GPC each."""
    gpc_of = {sm: sm for sm in range(HOPPER_SMS)}
    for sms in itertools.chain.from_iterable(clusters for _, clusters in launches):
        together = {gpc_of[sm] for sm in sms}
        gpc_of = {sm: min(together) if gpc in together else gpc for sm, gpc in gpc_of.items()}
    return gpc_of


def test_what_was_seen_is_eight_gpcs_and_what_pairs_alone_find() -> None:
    gpc_of = gpcs(seen())
    sizes = sorted(list(gpc_of.values()).count(gpc) for gpc in set(gpc_of.values()))
    assert sizes == [2, 2, 2, 2, 8, 16, 16, 16, 16, 16, 18, 18]


def test_clusters_of_a_gpc_are_neighbours() -> None:
    """Mostly: where dealing begins differs, and what the small GPC has no room for goes to the next one."""
    launches = seen()
    gpc_of = gpcs(launches)
    apart = {gpc for gpc in gpc_of.values() if list(gpc_of.values()).count(gpc) == 2}
    kept, as_they_come, most = 0, 0, 0
    for size, clusters in launches:
        if size == 3:  # K is split in 2, 4 or 8
            continue
        own = ["apart" if gpc_of[sms[0]] in apart else gpc_of[sms[0]] for sms in clusters]
        places = list(C.cta_order_by_gpc(HOPPER_SMS, len(clusters), size))
        assert sorted(places) == list(range(len(clusters)))
        walk = [own[cluster] for cluster in sorted(range(len(clusters)), key=places.__getitem__)]
        kept += sum(x == y for x, y in itertools.pairwise(walk))
        as_they_come += sum(x == y for x, y in itertools.pairwise(own))
        most += len(own) - len(set(own))
    assert kept > 0.85 * most
    assert as_they_come < 0.1 * most


@pytest.mark.parametrize(("num_sms", "clusters", "size"), [(130, 65, 2), (78, 39, 2), (144, 72, 2)])
def test_elsewhere_they_walk_as_they_come(num_sms, clusters, size) -> None:
    """On another chip, and where not all could run at once."""
    assert list(C.cta_order_by_gpc(num_sms, clusters, size)) == list(range(clusters))


@pytest.mark.parametrize(
    ("num_sms", "clusters", "size", "said"),
    [
        (0, 1, 2, "a device has SMs, not 0"),
        (HOPPER_SMS, 97, 1, "up to 96 clusters have places, not 97"),
        (HOPPER_SMS, -1, 2, "up to 96 clusters have places, not -1"),
        (HOPPER_SMS, 1, 0, "no cluster has 0 CTAs"),
        (HOPPER_SMS, 5, 20, "no cluster has 20 CTAs"),
    ],
)
def test_impossible_clusters_have_no_places(num_sms, clusters, size, said) -> None:
    with pytest.raises(ValueError, match=said):
        C.cta_order_by_gpc(num_sms, clusters, size)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize(
    ("cluster", "m", "n", "k"),
    [
        ((1, 1, 2), 19 * 64, 10 * 64, 768),  # 132 tiles, and 58 that pairs share
        ((1, 2, 1), 6 * 64, 50 * 64, 256),
        ((1, 1, 2), 11 * 64, 6 * 64, 768),
        ((1, 1, 4), 6 * 64, 5 * 64, 12 * 128),
        ((1, 1, 8), 5 * 64, 3 * 64, 24 * 128),
        ((1, 1, 4), 2 * 64, 5 * 64, 12 * 128),  # fewer than fit
    ],
)
def test_every_tile_is_somebodys(device, cluster, m, n, k) -> None:
    a, b = random_rows((m, k), device, 1), random_blocks((n, k), device, 2)
    out = GuardedOutput((m, n), torch.bfloat16, device)
    with simulator.options(num_sms=HOPPER_SMS), forced_tile(device, (m, n, k), False, 64, 64, cluster):
        deep_gemm.fp8_gemm_nt(a, b, out.tensor)
    out.check()
    assert_matches(out.tensor, product_nt(a, b))


@pytest.mark.parametrize("device", FEW, indirect=True)
@pytest.mark.parametrize("kind", ["contiguous", "psum", "masked"])
def test_every_tile_of_experts_is_somebodys(device, kind) -> None:
    counts, n, k = [200, 0, 130, 1, 300], 24 * 64, 256
    case = masked(counts, 300, n, k, device) if kind == "masked" else contiguous(counts, n, k, device)
    out = case.output()
    with simulator.options(num_sms=HOPPER_SMS), forced_tile(device, (512, n, k), False, 64, 64, (1, 2, 1)):
        run_experts(case, out.tensor, 200, psum=kind == "psum")
    out.check(complete=False)
    case.check(out.tensor)


@pytest.mark.parametrize("device", FEW, indirect=True)
def test_every_tile_of_k_groups_is_somebodys(device) -> None:
    x = k_groups(5 * 64, 24 * 64, [256, 0, 128, 384], device)
    with simulator.options(num_sms=HOPPER_SMS), forced_tile(device, (5 * 64, 24 * 64, 256), False, 64, 64, (1, 2, 1)):
        run_k_groups(x, "tn", "c_is_d")
