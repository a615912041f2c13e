"""One Markdown report of what blackwell_first_day.sh left in a folder. What is not there is said to be missing.

python benchmarks/first_day/report.py FOLDER > report.md
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import read_result
from tables import table

CONFIG = Path(__file__).resolve().parents[2] / "csrc" / "config"


def meanings(target: str) -> dict[str, str]:
    """Of the cost model's constants, as their comments have them. SM120 has SM80's model."""
    header = CONFIG / ("sm80" if target.startswith("sm_12") else "sm100") / "cost_constants.hpp"
    lines = re.findall(r"double (\w+) = [^;]+;(?:\s*// (.*))?", header.read_text())
    return {name: meaning.rstrip(",") for name, meaning in lines}


def read(folder: Path, name: str) -> Any:
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def parts(folder: Path) -> str:
    path = folder / "parts.txt"
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.is_file() else []
    return table(
        ["part", "seconds", "came of it"],
        [[n, s, "ok" if e == "0" else f"ended with {e}: {n}.log"] for n, s, e in rows],
    )


def facts(folder: Path) -> str:
    found = read(folder, "facts")
    if found is None:
        return "missing"
    machine = "\n".join(f"- {name}: {value}" for name, value in {**found["machine"], **found["device"]}.items())
    return f"{machine}\n- target: {found['target']}\n\n```\n{found['nvidia_smi']}\n{found['doctor']}```"


def correctness(folder: Path) -> str:
    found = read(folder, "correctness")
    if found is None:
        return "missing"
    ran = [row for row in found["rows"] if row["ended"] != "ok" or row.get("passed") or row.get("failed")]
    rows = [
        [row["file"], row.get("passed", "?"), row.get("failed", "?"), f"{row['seconds']:.0f}", row["ended"]]
        for row in ran
    ]
    total = [sum(row.get(word, 0) for row in found["rows"]) for word in ("passed", "failed")]
    lines = [f"{total[0]} passed, {total[1]} failed.", table(["file", "passed", "failed", "seconds", "ended"], rows)]
    failures = [failure for row in found["rows"] for failure in row.get("failures", [])]
    lines += [f"- `{f['test']}` (alone: {f.get('alone', 'not run')}): {f['message']}" for f in failures]
    return "\n\n".join(lines[:2]) + "\n\n" + "\n".join(lines[2:])


def hazards(folder: Path) -> str:
    found = read(folder, "hazards")
    if found is None:
        return "missing"
    rows = [
        [row["tool"], "not known" if row["reported"] is None else row["reported"], row.get("tests", ""), row["ended"]]
        for row in found["rows"]
    ]
    text = table(["tool", "reported", "tests", "ended"], rows)
    for row in found["rows"]:
        if row["reported"]:
            text += f"\n\n{row['tool']}:\n\n```\n" + "\n".join(row["lines"]) + "\n```"
    return text


def micro(folder: Path) -> dict[str, list[dict]]:
    """Rows of each micro-benchmark."""
    path = next(folder.glob("micro_*.json"), None)
    document = read_result(path) if path else {"parts": {}}
    return {name: part["rows"] for name, part in document["parts"].items()}


def rates(rows: list[dict]) -> str:
    cells = [
        [
            row["kind"],
            f"{128 * row['ctas']}x{row['cols']}",
            f"{row['cycles_per_product']:.1f}",
            f"{row['cols'] / 2:.0f}",
            f"{row['flop_per_cycle_and_sm']:.0f}",
            f"{row['tflops']:.0f}",
            f"{row['clock_mhz']:.0f}",
        ]
        for row in rows
    ]
    return table(["kind", "product", "cycles", "assumed", "FLOP a cycle and SM", "TFLOPS", "MHz"], cells)


def warp_rates(rows: list[dict]) -> str:
    cells = [
        [
            row["kind"],
            f"{row['rows']}x{row['cols']}",
            "ldmatrix" if row["fed"] else "registers",
            f"{row['flop_per_cycle_and_sm']:.0f}",
            f"{row['tflops']:.0f}",
            f"{row['clock_mhz']:.0f}",
        ]
        for row in rows
    ]
    return table(["kind", "tile of a warp", "operands by", "FLOP a cycle and SM", "TFLOPS", "MHz"], cells)


def moves(rows: list[dict]) -> str:
    cells = [[row["move"], row["columns"], f"{row['cycles_per_column']:.2f}"] for row in rows]
    return table(["tensor memory", "columns at once", "cycles a column"], cells)


def clusters(rows: list[dict]) -> str:
    """What csrc/config/sm100/clusters.hpp assumes."""
    cells = [
        [row["cluster"], row["clusters_that_fit"], "" if row["us"] is None else f"{row['us']:.2f}"]
        for row in rows
        if row["sync"]
    ]
    return table(["CTAs of a cluster", "clusters that run at once", "us, each waiting for the others once"], cells)


def measured_by_itself(found: dict[str, list[dict]], num_sms: int | None) -> dict[str, float]:
    """Constants of the cost model that a micro-benchmark measures."""
    values: dict[str, float] = {}
    if rows := [row for row in found.get("tensor_rates", []) if row["kind"] == "mxf8f6f4 e4m3" and row["cols"] == 256]:
        values["clock_mhz"] = rows[0]["clock_mhz"]
    if rows := [row for row in found.get("mma_rates", []) if row["kind"] == "bf16" and not row["fed"]]:
        values["clock_mhz"] = rows[0]["clock_mhz"]
        values["products_per_cycle"] = rows[0]["flop_per_cycle_and_sm"] / 2
    if rows := [row for row in found.get("grid", []) if row["us"] is not None]:
        values["launch_us"] = min(row["us"] for row in rows)
    if rows := found.get("read", []):
        values["memory_gb_per_s"] = max(row["gb_per_s"] for row in rows)
        if num_sms and "clock_mhz" in values:
            values["memory_bytes_per_cycle"] = values["memory_gb_per_s"] * 1e3 / num_sms / values["clock_mhz"]
    copies = [row for row in found.get("ingress", []) if row["tensor"] and row["cluster"] == 1 and row["sharers"] == 1]
    if rows := [row for row in copies if not row["from_memory"] and not row["alone"]]:
        values["l2_bytes_per_cycle"] = max(row["bytes_per_cycle"] for row in rows)
    if rows := [row for row in copies if row["from_memory"] and row["slots"] == 1]:
        values["fetch_cycles"] = min(row["box_bytes"] / row["bytes_per_cycle"] for row in rows)
    if rows := [row for row in found.get("tensor_moves", []) if row["move"] == "read"]:
        values["store_cycles"] = min(row["cycles_per_column"] for row in rows)
    return values


def constants(folder: Path, found: dict[str, list[dict]]) -> str:
    fit, machine = read(folder, "fit"), read(folder, "facts")
    alone = measured_by_itself(found, machine and machine["device"]["num_sms"])
    if fit is None:
        return "no fit" + (f"; measured by themselves: {alone}" if alone else "")
    means = meanings(fit["target"])
    rows = [
        [name, means.get(name, ""), f"{assumed:.4g}", f"{alone[name]:.4g}" if name in alone else "", f"{value:.4g}"]
        for (name, assumed), value in zip(fit["assumed"].items(), fit["fitted"].values(), strict=True)
    ]
    text = table(["constant", "what it says", "assumed", "measured by itself", "fitted"], rows)
    before, after = fit["before"], fit["after"]
    return (
        f"{text}\n\n{fit['problems']} problems. Time of the model's pick over the best config measured: "
        f"{before['mean_regret']:.3f} in the mean and {before['largest_regret']:.3f} at most before the fit, "
        f"{after['mean_regret']:.3f} and {after['largest_regret']:.3f} behind it. The worst: "
        + "; ".join(f"{' '.join(map(str, case))} {regret:.3f}" for regret, case in fit["worst"][:5])
    )


def gemm(folder: Path) -> str:
    found = read(folder, "gemm")
    if found is None:
        return "missing"

    def number(row: dict, name: str, form: str) -> str:
        return format(row[name], form) if isinstance(row.get(name), float) else ""

    rows = [
        [
            " ".join(map(str, row["case"])),
            number(row, "us", ".1f"),
            number(row, "tflops", ".0f"),
            number(row, "gb_per_s", ".0f"),
            number(row, "cublas_us", ".1f") or row.get("cublas_status", ""),
            row["status"],
        ]
        for row in found["rows"]
    ]
    return table(["case", "us", "TFLOPS", "GB/s", "cuBLASLt, us", "status"], rows)


def formats(folder: Path) -> str:
    found = read(folder, "formats")
    if found is None:
        return "missing"
    names = list(found["rows"][0]["us"])
    heads = [f"{row['m']}x{row['n']}x{row['k']}" for row in found["rows"]]
    rows = [
        [name, *(t if isinstance(t := row["us"][name], str) else f"{t:.1f}" for row in found["rows"])] for name in names
    ]
    return "Microseconds.\n\n" + table(["format", *heads], rows)


def micros(found: dict[str, list[dict]]) -> dict[str, str]:
    """Of SM120, or of SM100."""
    if found.get("mma_rates"):
        return {"Rates of mma.sync": warp_rates(found["mma_rates"])}
    sections = {
        "Rates of tcgen05.mma": (rates, "tensor_rates"),
        "Tensor memory": (moves, "tensor_moves"),
        "Clusters": (clusters, "grid"),
    }
    return {title: show(found[part]) if found.get(part) else "missing" for title, (show, part) in sections.items()}


def main() -> int:
    folder = Path(sys.argv[1])
    found = micro(folder)
    sections = {
        "Parts": parts(folder),
        "Machine": facts(folder),
        "Tests": correctness(folder),
        "compute-sanitizer": hazards(folder),
        **micros(found),
        "What the cost model assumes": constants(folder, found),
        "Public cases": gemm(folder),
        "Formats": formats(folder),
    }
    print("# The first day on a Blackwell\n")
    for title, text in sections.items():
        print(f"## {title}\n\n{text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
