#!/usr/bin/env bash
# The first day on a Blackwell, SM100 or SM120: everything about it that was only assumed or simulated, in one command and one report.
#
#   benchmarks/blackwell_first_day.sh OUT [COMMIT]     COMMIT: where there is no .git to ask
#
# Sets up and builds; then, each part under its own time limit so that one that hangs stops no other: facts of the
# machine; tests on the GPU; drawn products under compute-sanitizer; rates of each kind of instruction, of SM100's tensor
# memory too; bare reads, and SM100's copies and launches; the public cases, and each format; configs of the cost model
# measured, and its constants fitted to them. Two to three hours. OUT/report.md and OUT.tar.gz are to be sent back:
# docs/blackwell.md says where, and what to look at first.
#
# FIRST_DAY=rehearsal walks through all parts in small on the simulator, which is DG_SIM_TARGET (sm_100f). PARTS names some of the parts, with spaces
# between.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
out=${1:?say into which directory}
commit=${2:+--commit=$2}
python=${PYTHON:-python3}
rehearsal=${FIRST_DAY:-}
parts=${PARTS:-setup facts correctness hazards micro gemm formats calibrate fit}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"

# run NAME SECONDS COMMAND...: what it prints goes to OUT/NAME.log, what came of it to OUT/parts.txt.
run() {
    local name=$1 seconds=$2
    shift 2
    case " $parts " in *" $name "*) ;; *) return 0 ;; esac
    local begin=$SECONDS
    (cd "$root" && timeout --kill-after=10 "$seconds" "$@") >"$out/$name.log" 2>&1
    local ended=$?
    printf '%s\t%s\t%s\n' "$name" "$((SECONDS - begin))" "$ended" | tee -a "$out/parts.txt"
}

: >"$out/parts.txt"
if [ -z "$rehearsal" ]; then
    # What tests need is installed with them; and what the cost model's measurement needs.
    run setup 1200 bash -c './develop.sh test --numprocesses 0 --collect-only -q tests/support/test_sampling.py &&
        source third_party/environment.sh && choose_python && install_requirements requirements-benchmarks.txt'
    [ -x "$root/.venv/bin/python" ] && [ -z "${PYTHON:-}" ] && python=$root/.venv/bin/python
    simulate='' pick='-m gpu' files='' cases='' small_fit=240 tool_seconds=900 device=cuda
else
    export DG_SIM_TARGET=${DG_SIM_TARGET:-sm_100f}
    simulate=--simulate pick="-k sm${DG_SIM_TARGET//[!0-9]/}" files='tests/kernels/test_batched.py' small_fit=2 tool_seconds=60 device=cpu
    cases='--case dense,16,256,512 --case masked,2,40,256,256 --case bf16,16,256,512'
fi
case $("$python" -c "import deep_gemm; print(deep_gemm.get_target('$device'))") in
    sm_12*) micro=mma_rates,read ;;
    *) micro=tensor_rates,tensor_moves,grid,read,ingress ;;
esac
case_lists=()
[ -z "$rehearsal" ] || case_lists=(--case '["dense", 16, 256, 512]' --case '["masked", 2, 40, 256, 256]' --most 3 --calls 1)

# shellcheck disable=SC2086  # lists of words
{
    run facts 120 "$python" benchmarks/first_day/facts.py --device $device --out "$out" $commit
    run correctness 5400 "$python" benchmarks/first_day/correctness.py $files --pick="$pick" --seconds 5000 --out "$out"
    run hazards 4000 "$python" benchmarks/first_day/hazards.py --tool-seconds $tool_seconds --out "$out"
    run micro 1200 "$python" benchmarks/micro/run.py --only $micro $simulate \
        --seconds 200 --out "$out" $commit
    run gemm 900 "$python" benchmarks/bench_gemm.py --against-cublas --device $device $cases --seconds 800 --out "$out" $commit
    run formats 900 "$python" benchmarks/first_day/formats.py --device $device --seconds 800 --out "$out" $commit
    run calibrate 2400 "$python" benchmarks/calibrate.py measure --device $device "${case_lists[@]}" --within 3 \
        --seconds 2300 --out "$out" $commit
    run fit 600 "$python" benchmarks/first_day/fit.py "$out/calibration.json" --seconds $small_fit --out "$out"
}
"$python" "$here/first_day/report.py" "$out" >"$out/report.md" || exit 1
tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
printf 'written: %s\nplease send: %s\n' "$out/report.md" "$out.tar.gz"
