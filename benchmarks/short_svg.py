"""Saves matplotlib's figures as short SVG: what no reader sees is left out, and each style is written once."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def save(figure: plt.Figure, path: Path, **options) -> None:
    figure.savefig(path, metadata={"Date": None}, **options)
    plt.close(figure)
    path.write_text(shortened(path.read_text()))


def shortened(text: str) -> str:
    """The same picture: without metadata, names that nothing refers to and empty groups; a class for each style."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    picture = ElementTree.fromstring(text)
    for metadata in picture.findall(f"{{{_SVG}}}metadata"):
        picture.remove(metadata)
    classes: dict[str, str] = {}
    _shorten(picture, set(re.findall(r"#([\w-]+)", text)), classes)
    style = next(picture.iter(f"{{{_SVG}}}style"))
    style.text = f"{style.text}{''.join(f'.{name}{{{rules}}}' for rules, name in classes.items())}"
    return ElementTree.tostring(picture, encoding="unicode") + "\n"


def _shorten(element: ElementTree.Element, referred_to: set[str], classes: dict[str, str]) -> None:
    for child in element:
        _shorten(child, referred_to, classes)
    element.text, element.tail = (element.text or "").strip(), "\n"
    if element.get("id") not in referred_to:
        element.attrib.pop("id", None)
    if rules := element.attrib.pop("style", None):
        element.set("class", classes.setdefault(rules.replace(": ", ":").replace("; ", ";"), f"s{len(classes)}"))
    for name in ("d", "x", "y"):  # a tenth of a point is what a screen shows
        if value := element.get(name):
            short = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), value)
            element.set(name, re.sub(r"\s*([A-Za-z])\s*", r"\1", short).strip())
    kept: list[ElementTree.Element] = []
    for child in element:
        is_group = child.tag == f"{{{_SVG}}}g" and not child.attrib
        kept += child if is_group else [child]
    element[:] = kept
