"""Build of the native runtime: every csrc/**/*.cpp becomes one plain shared object, deep_gemm/_C.so.

_C.so is no Python extension module. It exports C symbols that apache-tvm-ffi loads and knows neither Python's nor
torch's headers, so that one build, and one wheel, serves every Python and torch version.

Environment:
    CXX, CXXFLAGS, LDFLAGS  the usual meaning; extra flags come after ours
    MAX_JOBS                compilers at once (default: one per core)
    DG_FORCE_BUILD=1        recompile every file even where nothing changed
    DG_SKIP_CUDA_BUILD=1    compile nothing; package the _C.so that is there, or none
    DG_REPOSITORY           https address for the metadata's links (default: that of the clone's origin)
    DG_TVM_FFI_LIBRARY      the libtvm_ffi.so to link with, of another machine's wheel (release.sh)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
OBJECTS = Path("build/native")  # below ROOT, where ninja runs
LIBRARY = ROOT / "deep_gemm" / "_C.so"
VERSION_FILE = Path("deep_gemm/_version.py")
REQUIREMENTS = "Run: pip install -r third_party/requirements-build.txt"
MINIMUM_GCC = 11
MINIMUM_CLANG = 14
# Warnings are errors with the compiler that CI has. Others may warn of what we never saw; that must not stop a user.
STRICT_GCC = 12

# What ccache must not take offence at, to work with a precompiled header.
CCACHE_SLOPPINESS = "pch_defines,time_macros"

COMPILE_FLAGS = [
    "-O2",
    "-std=c++20",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
    "-pthread",
]
# Undefined symbols are refused here, at the link, and not at a user's first import.
LINK_FLAGS = ["-shared", "-Wl,-z,defs", "-Wl,--as-needed", "-pthread"]


def base_version() -> str:
    return re.search(r'__version__ = "([^"]+)"', (ROOT / VERSION_FILE).read_text()).group(1)


def git(*arguments: str) -> str | None:
    if not (ROOT / ".git").exists():  # another clone's, in which this tree lies
        return None
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def of_sdist(header: str) -> str | None:
    """What the sdist in which we lie says of itself; None in a clone."""
    path = ROOT / "PKG-INFO"
    return HeaderParser().parsestr(path.read_text())[header] if path.is_file() else None


def full_version() -> str:
    """With the commit, as 3.0.0+g0123abcd or 3.0.0+g0123abcd.changed; a commit with the tag v3.0.0 has 3.0.0."""
    if version := of_sdist("Version"):
        return version
    name, changed = git("rev-parse", "--short=8", "HEAD"), git("status", "--porcelain", "-uno")
    if not name or (not changed and f"v{base_version()}" in (git("tag", "--points-at", "HEAD") or "").split()):
        return base_version()
    return f"{base_version()}+g{name}" + (".changed" if changed else "")


def repository() -> str | None:
    """The address that links of the metadata lead to; None where nobody says it."""
    if source := of_sdist("Project-URL"):
        return source.partition(", ")[2]
    address = os.environ.get("DG_REPOSITORY") or git("remote", "get-url", "origin") or ""
    return address.removesuffix(".git").rstrip("/") if address.startswith("https://") else None


def long_description(address: str | None) -> str:
    """README.md, of which links to files lead to the repository; where its address is unknown, they are plain text."""

    def link(match: re.Match) -> str:
        picture, text, target = match.groups()
        if target.startswith(("https:", "#")):
            return match.group()
        if address:
            return f"{picture}[{text}]({address}/{'raw' if picture else 'blob'}/HEAD/{target})"
        return text

    text = re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, (ROOT / "README.md").read_text())
    return text.replace("git clone REPOSITORY ", f"git clone {address} ") if address else text


def project_urls(address: str | None) -> dict[str, str]:
    places = {
        "Source": "",
        "Documentation": "/tree/HEAD/docs",
        "Changelog": "/blob/HEAD/CHANGELOG.md",
        "Issues": "/issues",
    }
    return {name: address + place for name, place in places.items()} if address else {}


def write_build_id() -> None:
    """For csrc/build_id_api.cpp. An equal file is left alone, so that nothing is compiled again."""
    interface = hashlib.sha256((ROOT / "deep_gemm" / "_C.pyi").read_bytes()).hexdigest()[:16]
    text = f'#define DEEP_GEMM_BUILD_ID "{base_version()} {interface}"\n'
    path = ROOT / OBJECTS / "build_id.hpp"
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


def is_set(name: str) -> bool:
    return os.environ.get(name, "0").lower() not in ("", "0", "false", "off", "no")


def find_compiler() -> tuple[list[str], list[str]]:
    """The host compiler's command and the flags that depend on it, or an exit that says what to install."""
    advice = (
        f"Install g++ {MINIMUM_GCC} or newer (Debian, Ubuntu: apt-get install g++), or set CXX to a C++20 compiler."
    )
    command = shlex.split(os.environ.get("CXX", ""))
    if not command:
        command = [name for name in ("g++", "clang++", "c++") if shutil.which(name)][:1]
        if not command:
            sys.exit(f"deep_gemm: no C++ compiler found. {advice}")
    if not shutil.which(command[0]):
        sys.exit(f"deep_gemm: CXX={os.environ['CXX']!r}: {command[0]!r} is not a program on PATH. {advice}")
    macros = subprocess.run(
        [*command, "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True, check=False
    ).stdout
    versions = {
        name: int(match.group(1))
        for name in ("__clang_major__", "__GNUC__")
        if (match := re.search(rf"#define {name} (\d+)", macros))
    }
    # Sums and the cost model's figures are the same on all machines: no fused multiply-adds where x86-64 has none.
    same_sums = ["-ffp-contract=off"] if "#define __aarch64__" in macros else []
    name, minimum = ("__clang_major__", MINIMUM_CLANG) if "__clang_major__" in versions else ("__GNUC__", MINIMUM_GCC)
    if versions.get(name, 0) < minimum:
        label = "clang" if name == "__clang_major__" else "g++"
        found = versions.get(name, "of unknown version")
        sys.exit(f"deep_gemm: {' '.join(command)} is {label} {found}; {label} {minimum} is needed. {advice}")
    if name == "__clang_major__":
        return command, ["-Wno-unused-parameter", *same_sums]  # clang counts those that tvm-ffi's export macro declares
    # The second flag is what ccache, where CXX names it, wants to see of a precompiled header.
    return command, [*(["-Werror"] if versions[name] == STRICT_GCC else []), "-fpch-preprocess", *same_sums]


@contextlib.contextmanager
def one_build_at_a_time() -> Iterator[None]:
    """Two builds of one tree would write the same objects; the second waits, then finds nothing to do."""
    (ROOT / OBJECTS).mkdir(parents=True, exist_ok=True)
    with open(ROOT / OBJECTS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_ninja() -> str:
    try:
        from ninja import BIN_DIR
    except ImportError:
        return shutil.which("ninja") or sys.exit(f"deep_gemm: there is no ninja. {REQUIREMENTS}")
    return str(Path(BIN_DIR) / "ninja")


def build_plan(compile_command: list[str], link_command: list[str], libraries: list[str]) -> str:
    """What ninja shall do. It compiles again what changed, or includes what changed, or whose command changed."""

    def text(command: list[str]) -> str:
        return shlex.join(command).replace("$", "$$")

    # Linked under another name and renamed: a process that has the old library mapped keeps it whole.
    staged = f"{OBJECTS}/_C.so"
    header = f"{OBJECTS}/precompiled.hpp"
    lines = [
        f"builddir = {OBJECTS}",
        # A compiler that is told to include a header takes NAME.gch, where it lies beside it, for NAME.
        "rule precompile",
        f"  command = cp $in {header} && {text(compile_command)} -MD -MF $out.d -x c++-header $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compiling $in",
        "rule compile",
        f"  command = {text(compile_command)} -include {header} -MD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compiling $in",
        "rule link",
        f"  command = {text(link_command)} $in {text(libraries)} -o {staged} && mv -f {staged} $out",
        "  description = linking $out",
    ]
    lines.append(f"build {header}.gch: precompile csrc/precompiled.hpp")
    objects = []
    for source in sorted(path.relative_to(ROOT) for path in (ROOT / "csrc").rglob("*.cpp")):
        objects.append(str(OBJECTS / source.relative_to("csrc").with_suffix(".o")))
        lines.append(f"build {objects[-1]}: compile {source} | {header}.gch")
    lines.append(f"build {LIBRARY.relative_to(ROOT)}: link {' '.join(objects)}")
    return "\n".join([*lines, ""])


def build_library() -> None:
    """Bring deep_gemm/_C.so up to date with csrc/."""
    try:
        from tvm_ffi import libinfo
    except ImportError as error:
        sys.exit(f"deep_gemm: cannot import tvm_ffi ({error}). {REQUIREMENTS}")
    compiler, own_flags = find_compiler()
    includes = ["-Icsrc", "-Ideep_gemm/include"]
    for path in dict.fromkeys(str(path) for path in libinfo.include_paths()):
        includes += ["-isystem", path]
    flags = [*COMPILE_FLAGS, *own_flags, *includes, *shlex.split(os.environ.get("CXXFLAGS", ""))]
    tvm_ffi = os.environ.get("DG_TVM_FFI_LIBRARY") or str(libinfo.find_libtvm_ffi())
    libraries = [tvm_ffi, *shlex.split(os.environ.get("LDFLAGS", "")), "-ldl"]
    jobs = int(os.environ.get("MAX_JOBS") or 0) or len(os.sched_getaffinity(0))
    with one_build_at_a_time():
        write_build_id()
        plan = OBJECTS / "build.ninja"
        (ROOT / plan).write_text(build_plan([*compiler, *flags], [*compiler, *LINK_FLAGS], libraries))
        ninja = [find_ninja(), "-f", str(plan), "-j", str(jobs)]
        os.environ.setdefault("CCACHE_SLOPPINESS", CCACHE_SLOPPINESS)
        if is_set("DG_FORCE_BUILD"):
            subprocess.run([*ninja, "-t", "clean"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        if subprocess.run([*ninja, "-k", "0"], cwd=ROOT, check=False).returncode != 0:
            sys.exit("deep_gemm: the build failed; what the compiler said stands above.")


class BuildNative(build_ext):
    """setuptools' build_ext, with our compile and link in the place of its own."""

    def run(self) -> None:
        if is_set("DG_SKIP_CUDA_BUILD"):
            state = "packaging the one that is there" if LIBRARY.is_file() else "and there is none: imports will fail"
            print(f"DG_SKIP_CUDA_BUILD: {LIBRARY.name} is not built, {state}", flush=True)
        else:
            build_library()
        if not self.inplace and LIBRARY.is_file():
            target = Path(self.build_lib) / "deep_gemm" / LIBRARY.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(LIBRARY, target)

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / "deep_gemm" / LIBRARY.name)] if LIBRARY.is_file() else []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class StampedPython(build_py):
    """The Python files, of which the one with the version gets the commit."""

    def run(self) -> None:
        super().run()
        stamped = Path(self.build_lib) / VERSION_FILE
        if stamped.is_file():
            stamped.write_text(stamped.read_text().replace(f'"{base_version()}"', f'"{VERSION}"'))


class PlatformWheel(bdist_wheel):
    """A wheel bound to the platform (it holds machine code) but to no Python version or ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


VERSION = full_version()
ADDRESS = repository()
setup(
    version=VERSION,
    long_description=long_description(ADDRESS),
    long_description_content_type="text/markdown",
    project_urls=project_urls(ADDRESS),
    # The sources stand in csrc/ and are found by build_library; naming the module makes setuptools run BuildNative.
    ext_modules=[Extension("deep_gemm._C", sources=[])],
    cmdclass={"build_ext": BuildNative, "build_py": StampedPython, "bdist_wheel": PlatformWheel},
)
