"""The wheel and the scripts that set up an environment. No test here compiles csrc/ or downloads anything."""

import os
import re
import runpy
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "https://example.org/deep_gemm"
PACKAGED = ("deep_gemm", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


def run(*command, cwd, expect=0, **environment):
    """Run a command; `environment` is added to this process's, where None removes."""
    variables = {**os.environ, **environment}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={name: str(value) for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this tree with the _C.so that is built in it."""
    clone = tmp_path_factory.mktemp("clone")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, clone / name)
    output = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", output)
    environment = {"DG_SKIP_CUDA_BUILD": "1", "DG_REPOSITORY": ADDRESS}
    run(sys.executable, "-m", "pip", "wheel", *options, ".", cwd=clone, **environment)
    shutil.rmtree(clone)
    (built,) = output.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A directory for PYTHONPATH that holds the installed wheel. The clone it was built from is gone."""
    target = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", target, wheel, cwd=target)
    return target


def test_one_wheel_serves_every_python(wheel):
    name, _, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("deep_gemm_jit", "py3", "none")
    assert platform.startswith("linux_")


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "deep_gemm").rglob("*")
        if path.is_file() and path.suffix in (".py", ".pyi", ".cuh", ".typed", ".so")
    }
    assert {"deep_gemm/_C.so", "deep_gemm/_C.pyi", "deep_gemm/py.typed"} <= wanted
    assert {name for name in names if ".dist-info/" not in name} == wanted
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_states_what_it_needs(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    lines = archive.read(metadata).decode().splitlines()
    assert {"License-Expression: MIT", "License-File: LICENSE", f"Project-URL: Source, {ADDRESS}"} <= set(lines)
    assert {"Author", "Keywords", "Classifier"} <= {line.partition(":")[0] for line in lines}
    assert {f"Provides-Extra: {extra}" for extra in ("cli", "nvrtc", "transformers")} <= set(lines)
    description = "\n".join(lines)
    assert f"({ADDRESS}/blob/HEAD/docs/quick-start.md" in description
    assert re.findall(r"\]\((?!https:|#)[^)]+\)", description) == []
    needs = {line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist")}
    assert {re.match(r"[\w-]+", need).group() for need in needs if "extra" not in need} == {
        "apache-tvm-ffi",
        "torch",
        "tqdm",
    }


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, []),
        ({"sym_tag": "manylinux_2_34_x86_64"}, ["its symbols are those of manylinux_2_34_x86_64"]),
        ({"unsupported_isa": True}, ["it needs instructions that not every such machine has"]),
        ({"libs_to_eliminate": ["libtvm_ffi.so", "libz.so.1"]}, ["it needs libz.so.1"]),
    ],
)
def test_a_wheel_that_would_not_run_everywhere_is_refused(wrong, said):
    """What release.sh asks of auditwheel's answer."""
    faults = runpy.run_path(str(ROOT / "third_party" / "check_wheel.py"))["faults"]
    tag = "manylinux_2_28_x86_64"
    found = {
        "sym_tag": "manylinux_2_17_x86_64",
        "unsupported_isa": False,
        "libs_to_eliminate": ["libtvm_ffi.so"],
    } | wrong
    found["policy_upgrades"] = {tag: {"libs_to_eliminate": found["libs_to_eliminate"]}}
    assert faults(found, tag) == said


def test_the_library_needs_only_what_every_machine_has():
    listing = run("readelf", "-d", ROOT / "deep_gemm" / "_C.so", cwd=ROOT)
    needed = {line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libtvm_ffi.so", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "libdl.so.2"} | {
        name for name in needed if name.startswith("ld-linux")
    }
    assert not any("RPATH" in line or "RUNPATH" in line for line in listing.splitlines())


def test_the_installed_package_works_without_the_clone(installed, tmp_path):
    program = """
import torch, deep_gemm
from deep_gemm import testing, utils
print("from", deep_gemm.__file__)
a, b = torch.randn(64, 256), torch.randn(128, 256)
d = torch.empty(64, 128, dtype=torch.bfloat16)
deep_gemm.fp8_gemm_nt(utils.per_token_cast_to_fp8(a, False), utils.per_block_cast_to_fp8(b, False), d)
print("difference", testing.calc_diff(d, a @ b.t()))
assert testing.calc_diff(d, a @ b.t()) < 1e-3
"""
    environment = {"PYTHONPATH": installed, "DG_JIT_CACHE_DIR": tmp_path / "cache"}
    said = run(sys.executable, "-c", program, cwd=tmp_path, **environment)
    assert f"from {installed}/deep_gemm/__init__.py" in said


def test_a_missing_library_says_how_to_build_it(installed, tmp_path):
    copy = tmp_path / "deep_gemm"
    shutil.copytree(installed / "deep_gemm", copy, ignore=shutil.ignore_patterns("_C.so"))
    said = run(sys.executable, "-c", "import deep_gemm", cwd=tmp_path, expect=1)
    assert "ImportError" in said
    assert f"{copy}/_C.so does not exist" in said
    assert "./develop.sh" in said


def test_a_library_of_another_build_is_refused(installed, tmp_path):
    copy = tmp_path / "deep_gemm"
    shutil.copytree(installed / "deep_gemm", copy)
    with open(copy / "_C.pyi", "a") as stub:
        stub.write("# another interface\n")
    said = run(sys.executable, "-c", "import deep_gemm", cwd=tmp_path, expect=1)
    assert f"ImportError: {copy}/_C.so is of build " in said
    assert "another distribution has written into deep_gemm/" in said


def test_another_distribution_with_the_same_files_is_named(installed, tmp_path):
    """By install.sh before anything is installed, and by the doctor; a copy in vLLM is only told of."""
    program = [sys.executable, ROOT / "deep_gemm" / "_installations.py"]
    assert run(*program, cwd=tmp_path, PYTHONPATH=installed) == ""
    records = {"deep_gemm-1.0": "deep_gemm/__init__.py,,", "vllm-0.33": "vllm/third_party/deep_gemm/a.py,,"}
    for name, record in records.items():
        information = tmp_path / f"{name}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(*name.split("-")))
        (information / "RECORD").write_text(record + "\n")
    both = f"{tmp_path}:{installed}"
    said = run(*program, cwd=tmp_path, PYTHONPATH=both, expect=1)
    assert "deep_gemm 1.0: has files in deep_gemm/ too." in said
    assert "Run: pip uninstall deep_gemm deep_gemm_jit, then install one" in said
    said = run(sys.executable, "-m", "deep_gemm", "doctor", cwd=tmp_path, PYTHONPATH=both, expect=1)
    assert "deep_gemm 1.0: has files" in said
    assert "0.33 carries a copy of DeepGEMM" in said


def test_the_version_is_above_what_clients_compare_with_and_wheels_have_the_commit(installed):
    from deep_gemm._version import __version__ as version

    assert tuple(map(int, version.split("."))) > (2, 8, 2)
    own = next((installed).glob("deep_gemm_jit-*.dist-info")).name
    assert own == f"deep_gemm_jit-{version}.dist-info"  # of a tree without .git


def test_a_missing_tvm_ffi_is_named():
    said = run(sys.executable, "-c", "import sys; sys.modules['tvm_ffi'] = None; import deep_gemm", cwd=ROOT, expect=1)
    assert "ImportError: deep_gemm needs apache-tvm-ffi" in said.splitlines()[-1]


@pytest.fixture
def scripts(tmp_path):
    """A clone's scripts alone, in a directory of their own."""
    for name in ("develop.sh", "install.sh", "release.sh"):
        shutil.copy2(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "third_party", tmp_path / "third_party")
    return tmp_path


def script_file(path, *lines):
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("script", ["develop.sh", "install.sh"])
def test_scripts_say_which_compiler_they_need(scripts, script):
    old = script_file(scripts / "old-g++", "echo 'too old' >&2", "exit 1")
    said = run("bash", script, cwd=scripts, expect=1, CXX=old, DG_SKIP_CUDA_BUILD=None)
    assert f"{old} cannot compile C++20; g++ 11 or clang 14 or newer is needed" in said
    assert not (scripts / ".venv").exists()


def test_scripts_say_where_there_is_no_compiler(scripts):
    tools = scripts / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "basename"):
        (tools / name).symlink_to(shutil.which(name))
    said = run("bash", "develop.sh", cwd=scripts, expect=1, PATH=tools, CXX=None, DG_SKIP_CUDA_BUILD=None)
    assert "no C++ compiler found. Install one" in said


def test_scripts_refuse_an_old_python(scripts):
    script_file(scripts / "python", "[ $1 = --version ] && echo Python 3.8.1 || exit 1")
    said = run("bash", "develop.sh", cwd=scripts, expect=1, PYTHON="./python")
    assert "is Python 3.8.1; Python 3.10 or newer is needed" in said


def test_scripts_refuse_what_they_do_not_know(scripts):
    assert "unknown action 'tset'" in run("bash", "develop.sh", "tset", cwd=scripts, expect=1)
    assert "unknown argument '--help'" in run("bash", "install.sh", "--help", cwd=scripts, expect=1)
    assert "unknown argument 'arm64'" in run("bash", "release.sh", "arm64", cwd=scripts, expect=1)


def test_a_managed_interpreter_gets_a_venv(scripts):
    managed = Path("/usr/bin/python3")
    probe = "import ensurepip, os, sysconfig; print(os.listdir(sysconfig.get_path('stdlib')))"
    found = subprocess.run([managed, "-c", probe], capture_output=True, text=True, check=False).stdout
    if "EXTERNALLY-MANAGED" not in found:
        pytest.skip("/usr/bin/python3 is not an externally managed interpreter with venv")
    program = 'set -e; source third_party/environment.sh; choose_python; echo "chosen: $python"'
    clean = {"VIRTUAL_ENV": None, "CONDA_PREFIX": None}
    said = run("bash", "-c", program, cwd=scripts, PYTHON=managed, **clean)
    assert f"chosen: {scripts}/.venv/bin/python" in said
    # Run again, without being told the interpreter: the same environment, not made anew.
    said = run("bash", "-c", program, cwd=scripts, PYTHON=None, **clean)
    assert said == f"chosen: {scripts}/.venv/bin/python\n"


def test_requirements_that_are_met_are_not_listed(tmp_path):
    shutil.copy2(ROOT / "third_party" / "missing.py", tmp_path / "missing.py")
    (tmp_path / "some.txt").write_text("# a comment\npytest>=7\npytest>=999  # too new\nno-such-package-of-ours==1\n")
    said = run(sys.executable, tmp_path / "missing.py", "some.txt", cwd=tmp_path)
    assert said.splitlines() == ["pytest>=999", "no-such-package-of-ours==1"]


def test_every_requirement_has_a_version_to_install():
    pins = {line.split("==")[0] for line in (ROOT / "third_party" / "constraints.txt").read_text().splitlines()}
    for path in (ROOT / "third_party").glob("requirements-*.txt"):
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                assert "==" in line or line.split(">=")[0] in pins, f"{path.name}: {line}"
