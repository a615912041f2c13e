"""Which calls of deep_gemm installed clients make that tests/data/client_forms.json does not have.

    PYTHONPATH=. python tests/support/refresh_client_forms.py
    PYTHONPATH=. python tests/support/refresh_client_forms.py --folder sglang=/tmp/wheel/sglang --write

Sources are parsed, never imported. A call is told by its function's name, how many arguments it has by position, and
its keywords; `*` among them stands for what a wrapper hands on. Without --write only what is new is printed; with it
the new calls go into the record, where the test of forms (tests/api/test_client_forms.py) binds each to our
signatures.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

RECORD = Path(__file__).parents[1] / "data" / "client_forms.json"
CLIENTS = ("vllm", "sglang", "transformers")
MENTIONS = ("deep_gemm", "deepgemm")
KEPT_AS = "_impl"  # what wrappers call our functions: `_fp8_gemm_nt_impl`


@dataclass(frozen=True, order=True)
class Call:
    client: str
    function: str
    positional: int
    keywords: tuple[str, ...]


def public_names() -> frozenset[str]:
    """What a call must be of: functions of ours, and of the public API that we do not have."""
    import deep_gemm

    functions = {name for name in deep_gemm.__all__ if callable(getattr(deep_gemm, name, None))}
    return frozenset(functions | set(json.loads(RECORD.read_text())["absent"]))


def folder_of(client: str) -> Path | None:
    """Of an installed package, which is not imported."""
    found = importlib.util.find_spec(client)
    return Path(found.origin).parent if found is not None and found.origin else None


def names_imported(tree: ast.AST) -> set[str]:
    """What `from deep_gemm... import` brings into a module."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in imports if is_ours(node.module or "") for alias in node.names}


def is_ours(module: str) -> bool:
    """A client's own wrappers are not."""
    parts = module.lower().split(".")
    return any(mention in part and "wrapper" not in part for part in parts for mention in MENTIONS)


def name_called(node: ast.Call, imported: set[str]) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr if is_ours(ast.unparse(function.value)) else ""
    if not isinstance(function, ast.Name):
        return ""
    if function.id.endswith(KEPT_AS):
        return function.id.removeprefix("_").removesuffix(KEPT_AS)
    return function.id if function.id in imported else ""


def calls_in(client: str, source: str, names: frozenset[str]) -> Iterator[Call]:
    tree = ast.parse(source)
    imported = names_imported(tree)
    for node in ast.walk(tree):
        name = name_called(node, imported) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or name not in names:
            continue
        starred = [each for each in node.args if isinstance(each, ast.Starred)]
        keywords = sorted({keyword.arg or "*" for keyword in node.keywords} | ({"*"} if starred else set()))
        yield Call(client, name, len(node.args) - len(starred), tuple(keywords))


def calls_of(client: str, folder: Path, names: frozenset[str]) -> set[Call]:
    found: set[Call] = set()
    for path in sorted(folder.rglob("*.py")):
        if "third_party" in path.parts or "test" in path.parts:
            continue
        source = path.read_text(errors="replace")
        if any(mention in source.lower() for mention in MENTIONS):
            found |= set(calls_in(client, source, names))
    return found


def recorded(record: dict) -> set[Call]:
    return {Call(**{**each, "keywords": tuple(each["keywords"])}) for each in record["calls"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", action="append", default=[], metavar="CLIENT=PATH", help="sources that are not installed"
    )
    parser.add_argument("--write", action="store_true", help="add what is new to the record")
    arguments = parser.parse_args()
    folders = {client: folder_of(client) for client in CLIENTS}
    folders |= {client: Path(path) for client, _, path in (each.partition("=") for each in arguments.folder)}
    names, record = public_names(), json.loads(RECORD.read_text())
    known, new = recorded(record), set()
    for client, folder in folders.items():
        if folder is None:
            print(f"{client}: not installed")
            continue
        found = calls_of(client, folder, names)
        new |= found - known
        print(f"{client}: {len(found)} kinds of calls, {len(found - known)} of them not in the record")
    for call in sorted(new):
        keywords = ", ".join(call.keywords) or "no keywords"
        print(f"  {call.client}: {call.function}({call.positional} by position; {keywords})")
    if arguments.write:
        record["calls"] = [asdict(call) for call in sorted(known | new)]
        for client, folder in folders.items():
            if folder is not None:
                record["versions"][client] = version_of(client, folder)
        RECORD.write_text(text_of(record))


def text_of(record: dict) -> str:
    """JSON with a line for each thing that a list holds, so that differences can be read."""
    parts = []
    for name, value in record.items():
        lines = ",\n".join(f"  {json.dumps(each)}" for each in value) if isinstance(value, list) else ""
        parts.append(f" {json.dumps(name)}: [\n{lines}\n ]" if lines else f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def version_of(client: str, folder: Path) -> str:
    beside = sorted(folder.parent.glob(f"{client}-*.dist-info"))
    return beside[0].name.split("-")[1].removesuffix(".dist") if beside else importlib.metadata.version(client)


if __name__ == "__main__":
    main()
