"""Ask auditwheel whether a wheel runs on every machine that its tag names: check_wheel.py WHEEL TAG.

The wheel may need what the tag promises (glibc) and libtvm_ffi.so, which the package apache-tvm-ffi brings, alone.
"""

import json
import re
import subprocess
import sys


def faults(found: dict, tag: str) -> list[str]:
    """Why the wheel of which auditwheel said `found` may not carry the tag."""

    def glibc(name: str) -> tuple[int, ...]:
        version = re.match(r"manylinux_(\d+)_(\d+)_", name)
        return tuple(map(int, version.groups())) if version else (1000,)

    blockers = found["policy_upgrades"].get(tag, {})
    others = set(blockers.get("libs_to_eliminate", [])) - {"libtvm_ffi.so"}
    said = []
    if glibc(found["sym_tag"]) > glibc(tag):
        said.append(f"its symbols are those of {found['sym_tag']}")
    if others:
        said.append(f"it needs {', '.join(sorted(others))}")
    if blockers.get("blacklisted_symbols"):
        said.append(f"it has symbols that are not allowed: {blockers['blacklisted_symbols']}")
    if found["unsupported_isa"]:
        said.append("it needs instructions that not every such machine has")
    return said


if __name__ == "__main__":
    wheel, tag = sys.argv[1:]
    command = [sys.executable, "-m", "auditwheel", "show", "--json", wheel]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if said := faults(found, tag):
        sys.exit(f"deep_gemm: {wheel} is no {tag}: {'; '.join(said)}")
    print(f"deep_gemm: auditwheel: {wheel} is {tag}; its symbols are those of {found['sym_tag']}", file=sys.stderr)
