"""deep_gemm/_C.pyi says what _C.so exports: the same names, with as many arguments. Records: test_records.py."""

import re
from pathlib import Path

import pytest
from records import FUNCTIONS

from deep_gemm._extension import C

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {
    name: len(arguments.posonlyargs) + len(arguments.args)
    for name, arguments in FUNCTIONS.items()
    if not (arguments.kwonlyargs or arguments.vararg or arguments.kwarg)
}


def test_every_export_has_a_stub():
    exports = {
        name
        for path in (ROOT / "csrc").rglob("*.cpp")
        for name in re.findall(r"^DEEP_GEMM_EXPORT\((\w+),", path.read_text(), re.MULTILINE)
    }
    assert set(FUNCTIONS) == exports


@pytest.mark.parametrize("name", COUNTS)
def test_argument_counts(name):
    # No export takes twenty, so that nothing runs: the call is refused with the number that is wanted.
    with pytest.raises(TypeError, match=rf"takes {COUNTS[name]} arguments, but was given 20"):
        getattr(C, name)(*range(20))
