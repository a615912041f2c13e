"""The tables of micro-benchmarks, from what micro/run.py writes."""

from __future__ import annotations

from tables import number, table


def micro_section(document: dict) -> str:
    parts = []
    for name, tables in TABLES.items():
        part = document["parts"].get(name)
        if part is None:
            continue
        later = f", commit {part['commit']}" if "commit" in part else ""  # measured again by itself
        parts.append(f"**{part.get('about', name)}** (`benchmarks/micro/{name}.py`{later})\n")
        parts.append(f"{HOW_TO_READ[name]}\n")
        if part["status"] != "ok":
            parts.append(f"Incomplete: {part['status']}.\n")
        if part["rows"]:
            parts.append(tables(part["rows"]))
    return "\n".join(parts)


HOW_TO_READ = {
    "grid": (
        "A CTA has 384 threads. With 227 KB of shared memory an SM holds one CTA, and a cluster needs its SMs in "
        "one GPC: so 120 of 132 SMs run clusters of four."
    ),
    "read": (
        "The fastest of eight launch shapes each. Last column: CTAs an SM x threads of each, and 16-byte loads "
        "that a thread has under way."
    ),
    "add": (
        "A tile is added (or stored) in shares of 16 rows from shared memory. *Shares under way*: how many of "
        "them the copy engine may still be reading. *The L2 is asked*: a prefetch of the lines that a later share"
        " will be added to, so many shares ahead; *one line of 2*: for every second line of 128 bytes only. "
        "*Leaves the L2 first*: the cache hint evict_first."
    ),
    "ingress": (
        "*Who*: how many CTAs copy; *multicast to 2*: CTAs of a cluster copy parts of a box for each other; *the "
        "same for 8*: eight neighbours (in one GPC), or CTAs *far apart*, read the same data. *Copies*: by a "
        "tensor map, or plain bulk copies."
    ),
    "decode_chain": (
        "The loop over K of a product with few tokens: a K block has 128 of K. *Each its rows*: a warpgroup has "
        "64 rows of its own; *K blocks in turn*: warpgroups share 64 rows and take every second (third, fourth) K"
        " block. *Overlapped*: the next `wgmma` runs while sums are promoted. *Copies*: operands come from the "
        "L2, not from shared memory that is full already. *Of 64 rows*: cycles by 64 rows of result; the tensor "
        "cores need those of the last column."
    ),
    "k_block": (
        "*2 x 2x1 m64n128*: two warpgroups with 2 x 1 tiles each of that `wgmma`. *Promotion*: FP8's sums are "
        "added to FP32 ones, times a scale for each row, or the product of a row's and a column's. *Copies*: "
        "operands of the next K blocks arrive meanwhile, each CTA's *own* or *shared as a GEMM's* CTAs share "
        "them. *Tensor* and *shared memory*: the cycles that those would need alone, at 128 bytes a cycle. *MHz*:"
        " the clock that was left, since power binds."
    ),
    "beside_wgmma": (
        "Cycles of a warp's instruction where nothing else runs, and beside `wgmma` of another warpgroup; last "
        "column: what the instructions cost the `wgmma`."
    ),
    "logits_finish": (
        "Two warpgroups multiply tiles of 64 keys by 256 columns each, of operands that stay in shared memory, and "
        "finish sums as the kernel of index logits does: cycles of a tile, by what is done of it, and the rate of all."
    ),
}


def grid_table(rows: list[dict]) -> str:
    lines = [
        [
            str(row["cluster"]),
            "yes" if row["sync"] else "",
            str(row["smem_bytes"]),
            str(row["clusters_that_fit"]),
            str(row["ctas"]),
            number(row["us"], 2),
        ]
        for row in rows
    ]
    return table(["cluster", "waits for each other", "shared memory", "clusters that fit", "CTAs", "us"], lines)


def read_table(rows: list[dict]) -> str:
    lines = [
        [
            f"{row['n']} x {row['k']}",
            number(row["bytes"] * 1e-6, 1),
            number(row["us"], 2),
            number(row["gb_per_s"], 0),
            f"{row['ctas_per_sm']} x {row['threads']}, {row['loads']} loads",
        ]
        for row in rows
    ]
    return table(["N x K", "MB", "us", "GB/s", "threads an SM, loads of each"], lines)


HOW = {
    "add": "added by the copy engine",
    "store": "stored, not read",
    "fetch": "fetched and stored by the copy engine",
    "threads_add": "loaded, added to and stored by threads",
    "threads_reduce": "added by threads (`red`)",
}


def add_table(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        how = [HOW[row["how"]]]
        how += ["leaves the L2 first"] if row["evict_first"] else []
        asked = "" if row["ahead"] < 0 else f"{row['ahead']} shares before"
        asked += f", one line of {row['every']}" if row["every"] > 1 else ""
        lines.append(
            [
                ", ".join(how),
                asked,
                f"{row['rows']}x{row['cols']}",
                f"128x{row['tile_cols']}",
                str(row["groups"]),
                number(row["us"], 1),
                number(row["gb_per_s"], 0),
            ]
        )
    head = ["D is", "the L2 is asked", "D", "tile", "shares under way", "us", "GB/s moved"]
    return table(head, lines)


def ingress_table(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        who = [f"{row['ctas']} CTAs"]
        who += [f"multicast to {row['cluster']}"] if row["cluster"] > 1 else []
        apart = " far apart" if row.get("apart") else ""
        who += [f"the same for {row['sharers']}{apart}"] if row["sharers"] > 1 else []
        lines.append(
            [
                "memory" if row["from_memory"] else "L2",
                ", ".join(who),
                "tensor" if row["tensor"] else "plain",
                f"{row['box_bytes'] / 1024:g} x {row['slots']}",
                number(row["bytes_per_cycle"], 1),
                number(row["gb_per_s"], 0),
            ]
        )
    return table(["from", "who", "copies", "KB x under way", "bytes a cycle into an SM", "GB/s read"], lines)


def decode_chain_table(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        how = ["each its rows" if not row["striped"] else "K blocks in turn"] if row["warpgroups"] > 1 else []
        how += ["overlapped"] if row["overlap"] else []
        how += ["copies"] if row["copy"] else []
        how += [] if row["alone"] else ["all SMs"]
        lines.append(
            [
                f"m64n{row['cols']}",
                str(row["warpgroups"]),
                ", ".join(how),
                number(row["cycles"], 0),
                number(row["cycles_per_64_rows"], 0),
                number(row["tensor_cycles"], 0),
            ]
        )
    header = ["wgmma", "warpgroups", "how", "cycles a K block", "of 64 rows", "of them tensor cores"]
    return table(header, lines)


def k_block_table(rows: list[dict]) -> str:
    promotions = [
        "",
        "a scale a row",
        "row x column",
        "row x column, multiplied ahead",
        "row x column, columns read ahead",
        "row x column, products by wgmma",
    ]
    lines = []
    for row in rows:
        copies = ["", "own", "shared as a GEMM's"][row["copy"]]
        lines.append(
            [
                f"{row['warpgroups']} x {row['row_tiles']}x{row['col_tiles']} m64n{row['cols']}"
                + (", rows in registers" if row["rows_in_registers"] else "")
                + ("" if row["multiply"] else ", no wgmma"),
                promotions[row["promote"]],
                copies + (f", pairs of {row['cluster']}" if row["cluster"] > 1 else ""),
                number(row["cycles"], 0),
                number(row["tensor_cycles"], 0),
                number(row["smem_cycles"], 0),
                number(row["clock_mhz"], 0),
            ]
        )
    return table(["warpgroups x tiles", "promotion", "copies", "cycles", "tensor", "shared memory", "MHz"], lines)


def beside_wgmma_table(rows: list[dict]) -> str:
    kinds = ["none", "FFMA", "FFMA, two scales in turn", "FFMA, a constant", "FMUL", "XOR"]
    lines = []
    for row in rows:
        alone, beside = ("" if row["kind"] == 0 else number(row[key], 2) for key in ("alone", "beside"))
        lines.append([kinds[row["kind"]], alone, beside, number(row["wgmma_cycles"], 0)])
    return table(["instruction", "cycles alone", "beside wgmma", "cycles of a K block of m64n128 beside it"], lines)


def logits_finish_table(rows: list[dict]) -> str:
    lines = []
    for heads, d in dict.fromkeys((row["heads"], row["d"]) for row in rows):
        parts = [row for row in rows if (row["heads"], row["d"]) == (heads, d)]
        lines.append([str(heads), str(d), *(number(row["cycles_per_tile"], 0) for row in parts)])
        lines[-1] += [number(parts[-1]["tflops"], 0), number(parts[-1]["clock_mhz"], 0)]
    head = ["heads", "D", "products alone", "relu, weights, sums", "and over a quad", "and stores"]
    return table([*head, "TFLOPS of all", "MHz"], lines)


TABLES = {
    "grid": grid_table,
    "read": read_table,
    "add": add_table,
    "ingress": ingress_table,
    "decode_chain": decode_chain_table,
    "k_block": k_block_table,
    "beside_wgmma": beside_wgmma_table,
    "logits_finish": logits_finish_table,
}
