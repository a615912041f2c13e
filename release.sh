#!/usr/bin/env bash
# Build what is published, into dist/: the sdist, and from it a wheel for each kind of machine that runs wherever glibc is 2.28
# or newer (Debian 10, Ubuntu 20.04, RHEL 8), with every Python and torch version.
#
#   ./release.sh [sdist] [x86_64] [aarch64]   those; all three if none is named
#   ./release.sh try [WHEEL]                  a new environment in build/: install the wheel, multiply; PYTHON=... names whose
#
# The compiler is zig's clang from PyPI, which has the glibc of either machine and links its C++ library statically: either
# wheel can be built on either machine. DG_REPOSITORY=https://... is the address that the metadata's links lead to. Nothing is
# published.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/third_party/environment.sh"
glibc=2.28

# Sdists and wheels are built by setuptools' own hooks, with what is installed.
hook() { # DIRECTORY, an expression
    mkdir -p build/release
    local log=$PWD/build/release/log
    (cd "$1" && "$python" -c "from setuptools import build_meta; build_meta.$2" >"$log" 2>&1) || {
        tail -n 40 "$log" >&2
        stop "this failed; all of it is in $log"
    }
}

build_sdist() {
    rm -rf dist/deep_gemm_jit-*.tar.gz deep_gemm_jit.egg-info
    DG_SKIP_CUDA_BUILD=1 hook . "build_sdist('dist')"
    rm -rf deep_gemm_jit.egg-info
    sdist=$(echo dist/deep_gemm_jit-*.tar.gz)
    [ -f "$sdist" ] || stop "dist/ must hold one sdist, got: $sdist"
}

# Leaves the machine's libtvm_ffi.so, which the runtime is linked with, in the directory.
fetch_tvm_ffi() { # MACHINE, DIRECTORY
    [ -f "$2/tvm_ffi/lib/libtvm_ffi.so" ] && return
    local platforms=(--platform "manylinux_2_17_$1" --platform "manylinux_2_24_$1" --platform "manylinux_2_28_$1")
    "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version 3.12 "${platforms[@]}" --dest "$2" \
        "$(grep '^apache-tvm-ffi==' third_party/constraints.txt)"
    "$python" -m zipfile -e "$2"/apache_tvm_ffi-*.whl "$2"
}

build_wheel() { # MACHINE
    local tag=manylinux_${glibc/./_}_$1 tree=$PWD/build/release/$1 home=$PWD wheel
    say "$1: compiling (minutes; build/release/log shows how far it is)"
    mkdir -p "$tree"
    # All but what was compiled before is that of the sdist, and nothing else.
    find "$tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
    tar -xzf "$sdist" --strip-components 1 -C "$tree"
    rm -rf "$tree"/build/lib "$tree"/build/bdist.* "dist/deep_gemm_jit-"*"$1.whl"
    fetch_tvm_ffi "$1" "$PWD/build/release/tvm_ffi_$1"
    CXX="$python -m ziglang c++ -target $1-linux-gnu.$glibc" LDFLAGS="-s ${LDFLAGS:-}" \
        DG_TVM_FFI_LIBRARY=$PWD/build/release/tvm_ffi_$1/tvm_ffi/lib/libtvm_ffi.so \
        hook "$tree" "build_wheel('$home/dist', {'--build-option': '--plat-name=$tag'})"
    wheel=$(echo "dist/deep_gemm_jit-"*"-py3-none-$tag.whl")
    "$python" third_party/check_wheel.py "$wheel" "$tag"
}

try_wheel() { # WHEEL
    local wheel=$1 environment
    wheel=$(cd "$(dirname "$wheel")" && pwd)/$(basename "$wheel")
    environment=$PWD/build/release/try
    # A torch that is there is used, and none is downloaded.
    "$python" -m venv --clear --system-site-packages "$environment"
    "$environment/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
    "$environment/bin/python" -m pip install --quiet "$wheel[nvrtc]"
    cd /
    "$environment/bin/python" -c 'import deep_gemm, sys, torch; print(deep_gemm.__path__[0], deep_gemm.__version__, "Python", sys.version.split()[0], "torch", torch.__version__)'
    "$environment/bin/python" -m deep_gemm
}

choose_python
if [ "${1:-}" = try ]; then
    install_torch
    try_wheel "${2:-$(echo dist/deep_gemm_jit-*"$(uname -m).whl")}"
    exit
fi
for part in "$@"; do
    [[ $part =~ ^(sdist|x86_64|aarch64)$ ]] || stop "unknown argument '$part': say sdist, x86_64, aarch64 or try"
done
install_requirements requirements-build.txt
[ "$*" = sdist ] || install_requirements requirements-release.txt
build_sdist
for part in "${@:-x86_64 aarch64}"; do
    for machine in $part; do
        [ "$machine" = sdist ] || build_wheel "$machine"
    done
done
say "not published. In dist/:"
ls -l dist/deep_gemm_jit-* >&2
