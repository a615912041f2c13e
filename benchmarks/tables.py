"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def table(header: list[str], rows: Sequence[Sequence[object]]) -> str:
    lines: list[Sequence[object]] = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def launch_text(launch: dict) -> str:
    """Which of the driver's bare launches this is: an entry of bench_host.py's `bare_launches`, whatever its stream."""
    parts = [launch["attributes"] or "no attribute"]
    parts += [f"{launch['smem_bytes'] >> 10} KB of shared memory"] if launch["smem_bytes"] else []
    return ", ".join(parts)


def chain_text(cases: Sequence[Sequence]) -> str:
    """Which calls follow each other: an entry of bench_chain.py's."""
    if len(cases) == 1:
        return " ".join(map(str, cases[0]))
    return f"dense, {cases[0][1]} rows: " + ", ".join(f"{n}x{k}" for _, _, n, k in cases)
