"""Checks write no text unless they refuse: a call that is new to the runtime goes through some fifty of them."""

from __future__ import annotations

import re
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"
CHECK = re.compile(r"\brequire(?:_type|_runtime)?\(")
TEXT = re.compile(r"\b(?:concat|to_string|std::string|\w+_text|\w+_names|known_\w+)\(")


def end_of(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    raise AssertionError(f"an open bracket: {text[start : start + 40]}")


def early_text(source: str) -> list[str]:
    """Conditions' messages of which a part is written whether the condition holds or not."""
    found = []
    for check in CHECK.finditer(source):
        message = source[check.end() : end_of(source, check.end() - 1)]
        while (later := message.find("Later{")) >= 0:
            message = message[:later] + message[end_of(message, later + len("Later")) :]
        found += TEXT.findall(message)
    return found


def test_checks_write_no_text_before_they_refuse() -> None:
    sources = [path for pattern in ("*.cpp", "*.hpp") for path in CSRC.rglob(pattern)]
    found = {str(path.relative_to(CSRC)): early_text(path.read_text()) for path in sources}
    assert {name: text for name, text in found.items() if text} == {}


def test_early_text_is_seen() -> None:
    assert early_text('require(n > 0, "of ", concat("n=", n), "; ");') == ["concat("]
    assert early_text('require_type(good, Later{[&] { return concat("n=", n); }}, "x");') == []
