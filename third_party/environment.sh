# shellcheck shell=bash
# Sourced by develop.sh and install.sh: finds or makes the Python environment and installs what is missing in it.
#
# Nothing that is there is replaced: a package is installed only where its requirement is not met, and torch only where
# it cannot be imported at all.

# A relative PYTHON is meant from where the caller stands.
[[ ${PYTHON:-} == */* ]] && PYTHON=$(cd "$(dirname "$PYTHON")" && pwd)/$(basename "$PYTHON")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
: "${environment_home:=$PWD}" # where a .venv is looked for and made
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

say() { printf 'deep_gemm: %s\n' "$*" >&2; }
stop() {
    say "$*"
    exit 1
}

# The compiler is looked for first: it is the one thing that these scripts cannot install.
check_compiler() {
    [ "${DG_SKIP_CUDA_BUILD:-0}" != 0 ] && return
    local compiler=${CXX:-} name said
    for name in g++ clang++ c++; do
        [ -n "$compiler" ] || ! command -v "$name" >/dev/null || compiler=$name
    done
    [ -n "$compiler" ] || stop "no C++ compiler found. Install one (Debian, Ubuntu: apt-get install g++) or set CXX."
    # shellcheck disable=SC2086  # CXX may hold a launcher and a compiler ("ccache g++")
    said=$(printf '#include <concepts>\n#include <span>\n#if defined(__clang__) ? __clang_major__ < 14 : __GNUC__ < 11\n#error too old\n#endif\n' |
        $compiler -std=c++20 -fsyntax-only -x c++ - 2>&1) ||
        stop "$compiler cannot compile C++20; g++ 11 or clang 14 or newer is needed (or set CXX). It said: $said"
}

# Sets $python. An interpreter that its system manages (PEP 668), or that cannot be written to, gets a .venv.
choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        python=$PYTHON
    elif [ -n "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && command -v python >/dev/null; then
        python=$(command -v python)
    elif "$environment_home/.venv/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$environment_home/.venv/bin/python
    else
        python=$(command -v python3) || stop "python3 is not on PATH. Install Python 3.10 or newer."
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        stop "$python is $("$python" --version 2>&1); Python 3.10 or newer is needed (name another one with PYTHON=...)."
    if "$python" - <<'END'; then
import os, sys, sysconfig
paths = sysconfig.get_paths()
managed = sys.prefix == sys.base_prefix and os.path.exists(os.path.join(paths["stdlib"], "EXTERNALLY-MANAGED"))
sys.exit(not (managed or not os.access(paths["purelib"], os.W_OK)))
END
        # A torch of the system's is used, not downloaded a second time.
        local options=(--clear)
        "$python" -c 'import torch' 2>/dev/null && options+=(--system-site-packages)
        say "$python is managed by its system: making $environment_home/.venv"
        "$python" -m venv "${options[@]}" "$environment_home/.venv" || {
            rm -rf "$environment_home/.venv"
            stop "$python cannot make a virtual environment. Install venv (Debian, Ubuntu: apt-get install python3-venv)."
        }
        python=$environment_home/.venv/bin/python
    fi
    "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null 2>&1 ||
        stop "$python has no pip. Install it (Debian, Ubuntu: apt-get install python3-pip), or name another PYTHON=..."
}

# install_requirements FILE...: installs, at their pins, those requirements of the files that are not met.
install_requirements() {
    local missing
    missing=$("$python" third_party/missing.py "$@")
    [ -z "$missing" ] && return
    say "installing $(echo "$missing" | tr '\n' ' ')"
    echo "$missing" | xargs -d '\n' "$python" -m pip install --quiet --constraint third_party/constraints.txt
}

# numpy comes along because torch warns at each import where it is missing.
install_torch() {
    "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' && return
    local version numpy=(--constraint third_party/constraints.txt numpy) quiet=(--quiet)
    [ -t 1 ] && quiet=() # gigabytes: who looks on sees pip's progress
    version=$(sed -n 's/^torch==//p' third_party/constraints.txt)
    if ! command -v nvidia-smi >/dev/null; then
        # Without a GPU the CPU build does: 0.2 GB and not several. First where pip is told to look, then at its maker's.
        say "installing torch $version (CPU build: no NVIDIA driver found)"
        "$python" -m pip install "${quiet[@]}" "torch==$version+cpu" "${numpy[@]}" 2>/dev/null && return
        "$python" -m pip install "${quiet[@]}" --retries 1 --timeout 20 "torch==$version+cpu" "${numpy[@]}" \
            --index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple 2>/dev/null && return
        say "the CPU build cannot be had here; installing the default build, which brings CUDA (several GB)"
    else
        say "installing torch $version with CUDA (several GB; install another torch beforehand to keep it)"
    fi
    "$python" -m pip install "${quiet[@]}" "torch==$version" "${numpy[@]}"
}

install_nvrtc() {
    "$python" -c 'import runpy; runpy.run_path("deep_gemm/_nvrtc.py", run_name="__main__")' >/dev/null ||
        install_requirements requirements-nvrtc.txt
}

prepare() {
    check_compiler
    choose_python
    install_requirements requirements-build.txt
    install_torch
    install_nvrtc
}
