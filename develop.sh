#!/usr/bin/env bash
# Set up a clone for work and build it in place. Safe to run again: what is there and current is left alone.
#
#   ./develop.sh              set up, build deep_gemm/_C.so
#   ./develop.sh run [ARG...] ... then python -m deep_gemm ARG...
#   ./develop.sh test [ARG..] ... then the tests, with ARG... for pytest
#   ./develop.sh lint         ... then the linters and the formatters' checks
#
# PYTHON=/path/to/python names the interpreter; environment of the build: the head of setup.py.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/third_party/environment.sh"

build() {
    "$python" setup.py --quiet build_ext --inplace
}

lint() {
    "$python" -m ruff check .
    "$python" -m ruff format --check .
    git ls-files -z '*.cpp' '*.hpp' '*.cuh' |
        xargs -0 "$("$python" -c 'import clang_format; print(clang_format.get_executable("clang-format"))')" \
            --dry-run -Werror
}

action=${1:-build}
[ $# -gt 0 ] && shift
case $action in
    build | run | test | lint) ;;
    *) stop "unknown action '$action': say nothing, run, test or lint" ;;
esac
prepare
case $action in
    build)
        build
        say "built. Try: $python -m deep_gemm"
        ;;
    run)
        build
        exec "$python" -m deep_gemm "$@"
        ;;
    test)
        install_requirements requirements-test.txt
        build
        exec "$python" -m pytest "$@"
        ;;
    lint)
        install_requirements requirements-lint.txt
        lint
        ;;
esac
