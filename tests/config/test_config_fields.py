"""A config's fields are listed once (csrc/config/fields.hpp). One that the list forgets would default on the device."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = """
#include "config/fields.hpp"

namespace deep_gemm {
struct Three { int32_t x = 0; bool y = false; TileShape z = {}; };
template <> inline constexpr auto kFieldsOf<Three> = std::tuple{%s};
}
int main() {
    deep_gemm::Three three;
    deep_gemm::for_each_field(three, [](const auto&, const auto&) {});
}
"""


def compiles(fields: str, folder: Path) -> bool:
    (folder / "fields.cpp").write_text(SOURCE % fields)
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'deep_gemm' / 'include'}"]
    command = ["g++", "-std=c++20", "-fsyntax-only", *include, "fields.cpp"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0 or "kFieldsOf must list every field, in order" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_list_that_forgets_a_field_does_not_compile(tmp_path: Path) -> None:
    x, y, z = (f'Field{{"{name}", &Three::{name}}}' for name in "xyz")
    assert compiles(f"{x}, {y}, {z}", tmp_path)
    for wrong in (f"{x}, {y}", f"{x}, {z}", f"{x}, {y}, {y}", f"{y}, {x}, {z}"):
        assert not compiles(wrong, tmp_path), wrong
