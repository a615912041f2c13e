"""The documentation site: its code runs, what its pages quote is there, and the menu and the reference have all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import fresh
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RUN = [ROOT / "README.md", *(DOCS / name for name in ("quick-start.md", "how-to.md", "simulate-your-kernel.md"))]
EVERY_PAGE = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(DOCS.rglob("*.md"))]
ELSEWHERE = r"[Oo]thers?\b|[Oo]therwise|\bas\s+for\s+`|with its arguments|those of the two|`with` block"
REFERENCE = sorted(DOCS.glob("api/*.md"))


def pages() -> set[str]:
    return {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_code_runs_as_it_stands(page) -> None:
    """All blocks of a page, one after the other."""
    blocks = blocks_of(page)
    assert blocks
    fresh.check("\n".join(blocks))


@pytest.mark.sampled(6)  # they compile some 100 kernels
@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_examples_of_the_reference_run(page, tmp_path) -> None:
    own_cache = {"DG_JIT_CACHE_DIR": tmp_path} if page.name == "jit.md" else {}  # which it empties
    fresh.check("\n".join([*blocks_of(page), "result = None"]), **own_cache)  # else it would be handed over


def test_names_in_code_exist() -> None:
    """In the blocks of all pages: those that do not run, because they want a model or a GPU, too."""
    wrong = []
    for page in EVERY_PAGE:
        for node in ast.walk(ast.parse("\n".join(blocks_of(page)))):
            names: list[str] = []
            while isinstance(node, ast.Attribute):
                names, node = [node.attr, *names], node.value
            if names and isinstance(node, ast.Name) and node.id == "deep_gemm":
                found: Any = importlib.import_module("deep_gemm.nn" if names[0] == "nn" else "deep_gemm")
                for name in names[names[0] == "nn" :]:
                    found = getattr(found, name, None)
                wrong += [f"{page.name}: {'.'.join(names)}"] if found is None else []
    assert wrong == []


def test_commands_exist(monkeypatch, capsys) -> None:
    """In all pages: modules and scripts that are there, and of ours commands and options that the parser has."""
    from deep_gemm._commands.parser import parse_arguments

    @functools.cache
    def options_of(*command: str) -> set[str] | None:
        monkeypatch.setattr("sys.argv", ["deep_gemm", *command, "--help"])
        with pytest.raises(SystemExit) as stopped:
            parse_arguments(None)
        return set(re.findall(r"--[a-z][\w-]*", capsys.readouterr().out)) if stopped.value.code == 0 else None

    wrong, seen = [], 0
    for page in EVERY_PAGE:
        text = page.read_text()
        found = re.findall(r"^```\w*\n(.*?)^```|`([^`\n]+)`", text, flags=re.M | re.S)
        code = "\n".join(block or inline for block, inline in found)
        wrong += [f"{page.name}: {name}" for name in re.findall(r"\./(\w+\.sh)", code) if not (ROOT / name).exists()]
        for module, rest in re.findall(r"python -m ([\w.]+)([^\n#|;]*)", code):
            if module != "deep_gemm":
                known = module.endswith(".NAME") or (ROOT / f"{module.replace('.', '/')}.py").exists()
                wrong += [] if known else [f"{page.name}: {module}"]
                continue
            words = re.match(r"((?: [a-z]+\b(?!\.))*)", rest)[1].split()
            command = words[: 2 if words and words[0] in ("cache", "sim") else 1]
            options, seen = options_of(*command), seen + 1
            if options is None:
                wrong.append(f"{page.name}: {' '.join(command)}")
            elif more := set(re.findall(r"(?<= )--[a-z][\w-]*", rest)) - options:
                wrong.append(f"{page.name}: {' '.join(command)} has no {more}")
    assert seen > 25
    assert wrong == []


def test_messages_are_quoted_as_they_are() -> None:
    """docs/errors.md: the parts of a message between `..`."""
    sources = "\n".join(
        path.read_text() for folder in ("csrc", "deep_gemm") for path in (ROOT / folder).rglob("*.[ch]pp")
    )
    sources += "\n".join(path.read_text() for path in (ROOT / "deep_gemm").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    quoted = re.findall(r"^\| `([^`]+)`", (DOCS / "errors.md").read_text(), flags=re.M)
    assert len(quoted) > 25
    assert [part for message in quoted for part in message.split("..") if part.strip("' ") not in joined] == []


def test_the_menu_has_every_page() -> None:
    menu = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    assert menu == pages()


def public_names() -> list[tuple[str, Any]]:
    """As the site itself counts them, which does not build without a place for each."""
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "site" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return list(hooks.public_objects())


def test_every_public_name_has_an_example() -> None:
    """In the pages of the reference, whose code runs (above): by where it is from, since words alone may be others."""
    used = set()
    for page in DOCS.glob("api/*.md"):
        for node in ast.walk(ast.parse("\n".join(blocks_of(page)))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add((node.value.id, node.attr))
    unused = []
    for path, value in public_names():
        name = path.rpartition(".")[2]
        homes = {part for other, same in public_names() if same is value for part in other.split(".")[:-1]}
        if not any((home, name) in used for home in homes):
            unused.append(path)
    assert len(used) > 150
    assert unused == []


def test_reference_names_parameters_and_errors() -> None:
    """Each parameter is explained, or the text says whose explanation serves; so are errors."""
    wrong = []
    for path, value in public_names():
        text, module = inspect.getdoc(value) or "", inspect.getdoc(sys.modules[value.__module__]) or ""
        if not text:
            wrong.append(f"{path}: no text")
        if dataclasses.is_dataclass(value) or hasattr(value, "_fields"):
            continue
        known = [name for name in inspect.signature(value).parameters if name not in ("self", "arguments", "keywords")]
        elsewhere = re.search(ELSEWHERE, text)
        unnamed = [name for name in known if not re.search(rf"\b{name}\b", text + module)]
        if unnamed and not elsewhere and unnamed not in (["device"], ["enabled"]):
            wrong.append(f"{path}: {unnamed}")
        listed = re.search(r"Args:\n(.*?)(?:\n\n|\Z)", text, re.S)
        entries = re.findall(r"^    (\w[\w, ]*):", listed[1], re.M) if listed else []
        named = {name.strip() for entry in entries for name in entry.split(",")} - {"The others", "others"}
        if "form" not in known and not named <= set(known):
            wrong.append(f"{path}: {named - set(known)} are no parameters")
    assert wrong == []
