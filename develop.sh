#!/usr/bin/env bash
# Set up a clone for work and build it in place. Safe to run again: what is there and current is left alone.
#
#   ./develop.sh              set up, build deep_gemm/_C.so
#   ./develop.sh run [ARG...] ... then python -m deep_gemm ARG...
#   ./develop.sh test [ARG..] ... then the tests, with ARG... for pytest (--full: all of the matrices, not a sample)
#   ./develop.sh lint         the linters, the formatters' checks and the type checkers; no build
#   ./develop.sh format       the formatters
#   ./develop.sh docs         the documentation site, into build/site; what MkDocs warns of is an error
#
# PYTHON=/path/to/python names the interpreter; environment of the build: the head of setup.py.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/third_party/environment.sh"

build() {
    "$python" setup.py --quiet build_ext --inplace
}

# On every C++ and CUDA file of the repository.
clang_format() {
    git ls-files -z '*.cpp' '*.hpp' '*.cuh' |
        xargs -0 "$("$python" -c 'import clang_format; print(clang_format.get_executable("clang-format"))')" "$@"
}

action=${1:-build}
[ $# -gt 0 ] && shift
case $action in
    build | run | test | lint | format | docs) ;;
    *) stop "unknown action '$action': say nothing, run, test, lint, format or docs" ;;
esac
case $action in
    format)
        choose_python
        install_requirements requirements-lint.txt
        ;;
    lint) # types are those of what is imported: torch is needed, a compiler is not
        choose_python
        install_requirements requirements-lint.txt requirements-types.txt requirements-build.txt requirements-transformers.txt
        install_torch
        ;;
    *) prepare ;;
esac
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
        install_requirements requirements-test.txt requirements-benchmarks.txt
        build
        exec "$python" -m pytest --numprocesses auto --maxprocesses 8 "$@" # of which the last counts: -n 0 for a debugger
        ;;
    lint)
        "$python" -m ruff check .
        "$python" -m ruff format --check .
        clang_format --dry-run -Werror
        "$python" -m mypy
        PYRIGHT_PYTHON_IGNORE_WARNINGS=1 "$python" -m pyright --pythonpath "$(command -v "$python")"
        ;;
    docs) # of functions that are made at import, the reference asks the package itself
        install_requirements requirements-docs.txt requirements-lint.txt # ruff formats the signatures
        build
        NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --quiet --clean
        say "built. Open $PWD/build/site/index.html"
        ;;
    format)
        "$python" -m ruff check --fix-only .
        "$python" -m ruff format .
        clang_format -i
        ;;
esac
