"""Makes a clone's own package and the tests' inputs and references importable. Import this first."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

sys.path.insert(0, str(ROOT / "tests" / "support"))
if (ROOT / "deep_gemm" / "_C.so").is_file():  # else the installed package
    sys.path.insert(0, str(ROOT))
