"""What a command says: lines for a person, or with `--json` its facts as one object."""

from __future__ import annotations

import json
from typing import Any


class Output:
    """`line` and `say` are for a person, `facts` for a program; every command fills both."""

    def __init__(self, command: str, as_json: bool = False) -> None:
        self.as_json = as_json
        self.facts: dict[str, Any] = {"command": command}

    def line(self, text: object = "") -> None:
        if not self.as_json:
            print(text, flush=True)

    def say(self, name: str, text: object) -> None:
        self.line(f"  {name:13s} {text}")

    def finish(self, status: int) -> int:
        if self.as_json:
            print(json.dumps(self.facts | {"status": status}, indent=1), flush=True)
        return status


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
