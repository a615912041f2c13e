"""Other installations that `import deep_gemm` could mean, or that clients may take instead.

Only the standard library is needed: install.sh runs this file by its path.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, distributions

OWN_NAME = "deep_gemm_jit"
_PACKAGE, _VLLM_COPY = "deep_gemm/", "vllm/third_party/deep_gemm/"


def _name_of(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"] or "?")


def _owns(distribution: Distribution, directory: str) -> bool:
    """By its RECORD, or the list of files that older ones have instead."""
    record = distribution.read_text("RECORD") or distribution.read_text("installed-files.txt") or ""
    return any(line.lstrip('"').startswith(directory) for line in record.splitlines())


def others() -> list[str]:
    """Name and version of each other distribution that has files in deep_gemm/."""
    own = OWN_NAME.replace("_", "-")
    return sorted(
        {
            f"{_name_of(found)} {found.version}"
            for found in distributions()
            if _name_of(found).replace("_", "-").lower() != own and _owns(found, _PACKAGE)
        }
    )


def vllm_copy() -> str | None:
    """The version of vLLM, if it carries a copy of DeepGEMM."""
    found = next((each for each in distributions(name="vllm") if _owns(each, _VLLM_COPY)), None)
    return None if found is None else str(found.version)


def conflict(found: list[str]) -> str:
    """What happens beside those, and what to do."""
    names = " ".join(name.split()[0] for name in found)
    return (
        f"{', '.join(found)}: has files in deep_gemm/ too. What was installed last has overwritten the other's, and "
        f"uninstalling either takes files of both. Run: pip uninstall {names} {OWN_NAME}, then install one"
    )


def main() -> int:
    found = others()
    if found:
        print(f"deep_gemm: {conflict(found)}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
