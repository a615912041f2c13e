"""Pictures as SVG, of boxes, arrows and words."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
BLUE, GREEN, ORANGE, RED, GREY = "#9fbcd8", "#a9cfb2", "#ebc79a", "#e0a49c", "#dcdcdc"


@dataclass
class Picture:
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: object, kind: str = "") -> None:
        """`kind`: s small, m in the middle of x, e ending there, b bold."""
        classes = f' class="{" ".join(kind)}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{classes}>{escape(str(words))}</text>')

    def box(self, x: float, y: float, width: float, height: float, fill: str, *lines: object, kind: str = "m") -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>')
        for i, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 4 + 14 * (i - (len(lines) - 1) / 2), line, kind)

    def arrow(self, *points: tuple[float, float]) -> None:
        path = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="M{path}"/>')

    def __str__(self) -> str:
        style = (
            "text{font-size:12px;font-family:sans-serif}.s{font-size:10px}.m{text-anchor:middle}.e{text-anchor:end}.b{font-weight:bold}"
            "rect{stroke:#444;stroke-width:.7}path{fill:none;stroke:#222;marker-end:url(#a)}"
        )
        head = (
            '<marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" style="fill:#222;stroke:none;marker-end:none"/></marker>'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}">'
            f"<style>{style}</style>{head}"
            f'<rect width="{self.width}" height="{self.height}" fill="#fff" style="stroke:none"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )
