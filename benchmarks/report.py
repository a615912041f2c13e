"""Tables and plots from the JSON files of bench_gemm.py, bench_host.py and micro/run.py.

    python benchmarks/report.py benchmarks/results/*.json --out benchmarks/results

writes report.md and, where matplotlib is installed, plots. Of several files with the same case the last one counts
that did not leave it out; those of cards whose limits are not known have tables of their own. With

    python benchmarks/report.py benchmarks/results/*.json --into docs/performance.md \\
        docs/notes/tables.md docs/notes/tables-h100.md docs/notes/micro-benchmarks.md

the tables there, between `<!-- begin NAME` and `<!-- end NAME`, are written instead: those of which a file tells; the
others stay.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from machine import read_result
from micro_tables import micro_section
from summary import CLASSES_OF, KNOWN_GPU, is_public, summarise
from tables import chain_text, launch_text, number, table


def machine_line(machine: dict) -> str:
    parts = [machine.get("gpu", "no GPU")]
    for name in ("driver", "power_limit", "compiler"):
        if machine.get(name):
            parts.append(f"{name.replace('_', ' ')} {machine[name]}")
    return ", ".join([*parts, f"torch {machine['torch']}", f"commit {machine['commit']}"])


def class_table(results: list[dict]) -> str:
    rows = []
    for row in summarise(results):
        rows.append(
            [
                row["class"],
                f"{row['timed']}/{row['cases']}",
                number(row["efficiency"]),
                str(row["against_deepgemm"]),
                number(row["over_deepgemm"]),
                number(row["slowest_over_deepgemm"]),
                number(row["over_cublas"]),
                number(row["slowest_over_cublas"]),
                str(row["wrong"]),
            ]
        )
    header = ["class", "timed", "efficiency", "DeepGEMM has", "over it", "slowest", "over cuBLASLt", "slowest", "wrong"]
    return table(header, rows)


def name_of(result: dict) -> str:
    return " ".join(map(str, result["case"]))


def listed(results: list[dict]) -> list[dict]:
    """Those that a table has one by one. Cases at random are in its classes, and each in the result's file."""
    return [result for result in results if not result["class"].startswith("drawn, ")]


def remark_of(result: dict) -> str:
    return "" if result["status"] == "ok" else result["status"]


def case_table(results: list[dict]) -> str:
    rows = []
    for result in results:
        if "us" not in result:
            rows.append([name_of(result), *[""] * 6, result["status"]])
            continue
        rows.append(
            [
                name_of(result),
                number(result["us"], 2),
                number(result["tflops"], 0),
                number(result["gb_per_s"], 0),
                number(result["efficiency"]),
                number(result.get("deepgemm_us"), 2),
                number(result.get("cublas_us"), 2),
                remark_of(result),
            ]
        )
    header = ["case", "us", "TFLOPS", "GB/s", "efficiency", "DeepGEMM us", "cuBLAS us", "remark"]
    return table(header, rows)


def of_known_card(document: dict) -> bool:
    """The limits behind `efficiency` are an H200's. (The simulator has none.)"""
    return document["machine"].get("gpu", KNOWN_GPU) == KNOWN_GPU


def latest(documents: list[dict]) -> list[dict]:
    """Of several results of a case the last one that was not left out."""
    found: dict[str, dict] = {}
    for result in (result for document in documents for result in document["rows"]):
        case = json.dumps(result["case"])
        if case not in found or not result["status"].startswith("skipped"):
            found[case] = result
    return list(found.values())


def by_card(documents: list[dict]) -> Iterator[tuple[list[str], list[dict]]]:
    """Of each card: on which machines, and its results."""
    for card in dict.fromkeys(document["machine"]["gpu"] for document in documents):
        of_card = [document for document in documents if document["machine"]["gpu"] == card]
        lines = dict.fromkeys(f"{machine_line(document['machine'])}\n" for document in of_card)
        yield list(lines), latest(of_card)


def other_card_section(documents: list[dict]) -> str:
    """By class, beside what was timed in turn."""
    parts = []
    for machines, results in by_card(documents):
        rows = [
            [
                row["class"],
                f"{row['timed']}/{row['cases']}",
                number(row["over_deepgemm"]),
                number(row["slowest_over_deepgemm"]),
                number(row["over_cublas"]),
                number(row["slowest_over_cublas"]),
                str(row["wrong"]),
            ]
            for row in summarise(results)
        ]
        header = ["class", "timed", "over DeepGEMM, same run", "slowest", "over cuBLASLt", "slowest", "wrong"]
        parts += [*machines, table(header, rows)]
    return "\n".join(parts)


def other_card_cases(documents: list[dict]) -> str:
    parts = []
    for machines, results in by_card(documents):
        rows = []
        for result in listed(results):
            figures = [number(result.get(name), 2) for name in ("us", "deepgemm_us", "cublas_us")]
            rows.append([name_of(result), number(result.get("tflops"), 0), *figures, remark_of(result)])
        header = ["case", "TFLOPS", "us", "DeepGEMM us", "cuBLAS us", "remark"]
        parts += [*machines, table(header, rows)]
    return "\n".join(parts)


def model_section(results: list[dict], machines: list[str]) -> str:
    """Other models' shapes and cases at random: by class, and each."""
    rows = []
    for row in summarise(results):
        rows.append(
            [
                row["class"].removeprefix("models, "),
                f"{row['timed']}/{row['cases']}",
                number(row["efficiency"]),
                number(row["least_efficient"]),
                str(row["against_cublas"]),
                number(row["over_cublas"]),
                number(row["slowest_over_cublas"]),
                number(row["over_deepgemm"]),
                number(row["slowest_over_deepgemm"]),
                str(row["wrong"]),
            ]
        )
    header = ["class", "timed", "efficiency", "lowest", "cuBLASLt has", "speed-up over it", "lowest"]
    header += ["over DeepGEMM", "lowest", "wrong"]
    parts = [*machines, table(header, rows)]
    rows = []
    for result in listed(results):
        over = result["cublas_us"] / result["us"] if result.get("cublas_us") else None
        figures = ["", "", "", ""]
        if "us" in result:
            figures = [number(result["us"], 2), number(result["tflops"], 0), number(result["gb_per_s"], 0)]
            figures.append(number(result["efficiency"]))
        others = [number(result.get("cublas_us"), 2), number(over), number(result.get("deepgemm_us"), 2)]
        rows.append([result.get("model", ""), name_of(result), *figures, *others, remark_of(result)])
    header = [
        "layer",
        "case",
        "us",
        "TFLOPS",
        "GB/s",
        "efficiency",
        "cuBLAS us",
        "speed-up over it",
        "DeepGEMM us",
        "remark",
    ]
    return "\n".join([*parts, table(header, rows)])


def fill(paths: list[Path], sections: dict[str, str]) -> None:
    """Replace what stands between the marks of each section, wherever they are. Writes all documents or none."""
    texts = {path: path.read_text() for path in paths}
    for name, content in sections.items():
        marks = re.compile(rf"(<!-- begin {name}\b[^\n]*-->\n).*?(<!-- end {name} -->)", re.DOTALL)
        places = [path for path, text in texts.items() if marks.search(text)]
        if not places:
            raise SystemExit(f"no place for {name} in {', '.join(map(str, paths))}")
        for path in places:
            texts[path] = marks.sub(lambda match, content=content: f"{match[1]}\n{content}\n{match[2]}", texts[path])
    for path, text in texts.items():
        path.write_text(text)
        print(f"written: {path}")


def host_medians(document: dict) -> dict[str, str]:
    rows = {}
    if seconds := document["import_seconds"]:
        rows["import, beside torch's and tvm_ffi's"] = f"{statistics.median(seconds) * 1e3:.0f} ms"
    for name, seconds in document["first_call_seconds"].items():
        rows[f"first call: {name}"] = f"{statistics.median(seconds) * 1e3:.1f} ms"
    for name, seconds in document["warm_call_seconds"].items():
        rows[f"warm: {name}"] = f"{seconds['median'] * 1e6:.2f} us"
    launches: dict[str, list[float]] = {}  # each on two streams, and after other memory was touched or not
    for launch in document.get("bare_launches", []):
        launches.setdefault(launch_text(launch), []).append(launch["us"])
    for name, us in launches.items():
        rows[f"the driver's launch alone: {name}"] = (
            " to ".join(dict.fromkeys((f"{min(us):.2f}", f"{max(us):.2f}"))) + " us"
        )
    return rows


def host_section(documents: list[dict]) -> str:
    """A column for each of these, which are of one kind of device."""
    columns = [host_medians(document) for document in documents]
    names = dict.fromkeys(name for column in columns for name in column)
    lines = "\n\n".join(machine_line(document["machine"]) for document in documents)
    header = ["median", *(document["machine"]["commit"] for document in documents)]
    return f"{lines}\n\n" + table(header, [[name, *(column.get(name, "") for column in columns)] for name in names])


def chain_section(document: dict) -> str:
    """Calls in a chain, by how their kernels start."""
    rows = []
    for row in document["rows"]:
        figures = [
            " / ".join(number(row.get(f"{chain}_{start}_us"), 2) for start in ("plain", "early"))
            for chain in ("graph", "small", "launched")
        ]
        rows.append(
            [
                chain_text(row["cases"]),
                *figures,
                number(row.get("cublas_graph_us"), 2),
                remark_of(row),
            ]
        )
    header = ["calls", "graph", "with a small kernel", "launched one by one", "cuBLASLt, graph", "remark"]
    return f"{machine_line(document['machine'])}\n\n" + table(header, rows)


def plot(results: list[dict], field: str, label: str, path: Path) -> bool:
    """One dot for each case, a column for each class."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return False
    every = [name for named in CLASSES_OF.values() for name, _ in named]
    names = [name for name in every if any(r["class"] == name and r.get(field) for r in results)]
    if not names:
        return False
    figure, axes = plt.subplots(figsize=(11, 4.5), constrained_layout=True)
    for column, name in enumerate(names):
        values = [result[field] for result in results if result["class"] == name and result.get(field)]
        spread = [column + 0.5 * (index + 0.5) / len(values) - 0.25 for index in range(len(values))]
        axes.scatter(spread, values, s=14, color="#4878a8")
        mean = statistics.geometric_mean(values)
        axes.plot([column - 0.35, column + 0.35], [mean, mean], color="#c04030", linewidth=2)
        axes.annotate(f"{mean:.2f}", (column + 0.36, mean), fontsize=8, color="#c04030", va="center")
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=8)
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results")
    parser.add_argument("--into", type=Path, nargs="+", help="write the tables of these documents")
    arguments = parser.parse_args()

    documents = [read_result(path) for path in arguments.files]
    every_gemm = [document for document in documents if document.get("what") == "bench_gemm"]
    gemm = [document for document in every_gemm if of_known_card(document)]
    others = [document for document in every_gemm if not of_known_card(document)]
    hosts: dict[str, list[dict]] = {}
    for document in documents:
        if document.get("what") == "bench_host":
            hosts.setdefault("host" if document["device"] == "cuda" else "host_without_gpu", []).append(document)
    micro = [document for document in documents if document.get("what") == "micro"]
    chains = [document for document in documents if document.get("what") == "bench_chain"]
    timed = latest(gemm)
    results = [result for result in timed if is_public(result)]
    models = [result for result in timed if not is_public(result)]

    def machines(public: bool) -> list[str]:
        """Of the files that have such cases."""
        used = [document for document in gemm if any(is_public(row) == public for row in document["rows"])]
        return list(dict.fromkeys(f"{machine_line(document['machine'])}\n" for document in used))

    if arguments.into:
        sections = {}
        if results:
            sections["machine"] = "\n".join(machines(True))
            sections["classes"] = class_table(results)
            sections["cases"] = case_table(results)
        if models:
            sections["models"] = model_section(models, machines(False))
        if others:
            sections["other_cards"] = other_card_section(others)
            sections["other_card_cases"] = other_card_cases(others)
        for name, documents in hosts.items():
            sections[name] = host_section(documents)
        if chains:
            sections["chains"] = chain_section(chains[-1])
        if micro:
            sections["micro"] = "\n".join(
                f"{machine_line(document['machine'])}\n\n{micro_section(document)}" for document in micro
            )
        fill(arguments.into, sections)
        return 0

    arguments.out.mkdir(parents=True, exist_ok=True)
    parts = ["# Results\n"]
    if results:
        parts += machines(True)
        parts.append(
            "Median GPU time of a call, L2 emptied before each; `over` is another library's time over ours, in the "
            "same run. Means are geometric.\n"
        )
        parts.append(class_table(results))
        if plot(results, "efficiency", "efficiency", arguments.out / "efficiency.png"):
            parts.append("![efficiency](efficiency.png)\n")
        parts += ["## Cases\n", case_table(results)]
    if models:
        parts += ["## Other models' shapes\n", model_section(models, machines(False))]
        if plot(models, "efficiency", "efficiency", arguments.out / "efficiency_models.png"):
            parts.append("![efficiency](efficiency_models.png)\n")
    if others:
        parts += ["## Other cards\n", other_card_section(others), other_card_cases(others)]
    for document in micro:
        parts += ["## Micro-benchmarks\n", f"{machine_line(document['machine'])}\n", micro_section(document)]
    for of_kind in hosts.values():
        parts += ["## Host\n", host_section(of_kind)]
    path = arguments.out / "report.md"
    path.write_text("\n".join(parts))
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
