#!/usr/bin/env bash
# Build a wheel (one for every Python and torch version), install it, and see that it imports. Safe to run again.
#
#   ./install.sh
#
# The clone is not needed afterwards. Where the interpreter is managed by its system, the package goes into a .venv in the
# directory from which the script was called. PYTHON=/path/to/python names the interpreter.
set -euo pipefail
environment_home=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/third_party/environment.sh"

[ $# -eq 0 ] || stop "unknown argument '$1': install.sh takes none"
prepare
"$python" deep_gemm/_installations.py || stop "nothing was installed"
# What an earlier build left there would be packed too, deleted modules among it.
rm -rf build/lib build/bdist.* deep_gemm_jit.egg-info dist/deep_gemm_jit-*.whl
say "1 of 3: compiling the runtime (minutes, the first time)"
"$python" setup.py --quiet build_ext --inplace # here, where ninja shows how far it is: pip would keep that back
say "2 of 3: packing the wheel"
DG_SKIP_CUDA_BUILD=1 "$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
rm -rf build/lib build/bdist.* deep_gemm_jit.egg-info
wheel=$(echo dist/deep_gemm_jit-*.whl)
say "3 of 3: installing $wheel"
"$python" -m pip install --quiet --no-deps --force-reinstall "$wheel"
cd /
"$python" -c 'import deep_gemm; print("deep_gemm", deep_gemm.__version__, "is installed in", deep_gemm.__path__[0])'
say "wheel: $OLDPWD/$wheel. Try: $python -m deep_gemm"
