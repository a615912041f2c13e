"""For MkDocs (mkdocs.yml): links of pages to files outside docs/ lead to the repository, where its address is known."""

from __future__ import annotations

import os
import re
from posixpath import normpath
from typing import Any

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
