"""The documentation site: its code runs, what its pages quote is there, and the menu and the reference have all."""

from __future__ import annotations

import re
from pathlib import Path

import fresh
import pytest

import deep_gemm

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RUN = [ROOT / "README.md", *(DOCS / name for name in ("quick-start.md", "how-to.md", "simulate-your-kernel.md"))]


def pages() -> set[str]:
    return {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_code_runs_as_it_stands(page, tmp_path) -> None:
    """All blocks of a page, one after the other."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)
    assert blocks
    outcome = fresh.run("\n".join(blocks))
    assert outcome.status == 0, outcome.stderr


def test_commands_exist(monkeypatch) -> None:
    """`python -m` of a module that is there; of ours, a command that its parser knows; scripts that are there."""
    from deep_gemm._commands.parser import parse_arguments

    wrong = []
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        text = "\n".join(re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.M | re.S))
        wrong += [f"{page.name}: {name}" for name in re.findall(r"\./(\w+\.sh)", text) if not (ROOT / name).exists()]
        for module, command in re.findall(r"python -m ([\w.]+)(?: ([a-z][\w-]*))?", text):
            if not (ROOT / f"{module.replace('.', '/')}.py").exists() and module != "deep_gemm":
                wrong.append(f"{page.name}: {module}")
            if module == "deep_gemm" and command:
                monkeypatch.setattr("sys.argv", ["deep_gemm", command, "--help"])
                with pytest.raises(SystemExit) as stopped:
                    parse_arguments(None)
                wrong += [] if stopped.value.code == 0 else [f"{page.name}: {command}"]
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


def test_the_reference_has_every_public_function() -> None:
    named = set(re.findall(r"^::: (deep_gemm[\w.]+)", "\n".join(p.read_text() for p in DOCS.glob("api/*.md")), re.M))
    functions = [getattr(deep_gemm, name) for name in deep_gemm.__all__ if name != "__version__"]
    missing = {
        function.__name__
        for function in functions
        if callable(function) and function.__module__ not in named and f"deep_gemm.{function.__name__}" not in named
    }
    assert missing == set()
