"""For MkDocs (mkdocs.yml): links of pages to files outside docs/ lead to the repository, where its address is known;
and the site that was built has a place for every public name.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath
from typing import Any

MODULES = "deep_gemm epilogue jit layout logits mega_moe nn quantize routing settings simulator testing utils weights"
ADDRESS = os.environ.get("DG_REPOSITORY", "").rstrip("/")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = page.file.src_uri.rpartition("/")[0]

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = normpath(f"docs/{folder}/{target}")
        if path.startswith("docs/") and not path.endswith((".py", "docs/notes")):
            return match.group()
        return f"[{text}]({ADDRESS}/blob/HEAD/{path})" if ADDRESS else text

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)\)", link, markdown)


def public_objects() -> Iterator[tuple[str, Any]]:
    """Functions and classes of the package and its public modules, each under its dotted name."""
    for module in MODULES.split():
        path = module if module == "deep_gemm" else f"deep_gemm.{module}"
        found = importlib.import_module(path)
        own = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == path]
        for name in getattr(found, "__all__", [name for name in own if name[0] != "_"]):
            value = getattr(found, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                yield f"{path}.{name}", value


def on_post_build(config: Any, **_: Any) -> None:
    from mkdocs.exceptions import PluginError

    pages = "".join(page.read_text() for page in Path(config["site_dir"], "api").glob("*.html"))
    places = set(re.findall(r'id="(deep_gemm[.\w]+)"', pages))
    names = [(path, f"{value.__module__}.{path.rpartition('.')[2]}") for path, value in public_objects()]
    missing = [path for path, at_home in names if not places & {path, at_home, f"deep_gemm.{path.rpartition('.')[2]}"}]
    if missing:
        raise PluginError(f"the reference (docs/api) must have every public name, but lacks {', '.join(missing)}")
