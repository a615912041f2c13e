#!/usr/bin/env bash
# Takes all results that docs/performance.md and docs/notes/tables*.md show, on a machine with a GPU, in seven to
# ten minutes. What is most needed comes first; each program has its own time limit, and one that fails stops no other.
#
#   benchmarks/all.sh OUT [COMMIT]     COMMIT: where there is no .git to ask
#
# With DEEPGEMM=FOLDER in the environment DeepGEMM is timed in turn (other_deep_gemm.py says what FOLDER is).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?say into which directory}
commit=${2:+--commit=$2}
theirs=${DEEPGEMM:+--against-deepgemm=$DEEPGEMM}
python=${PYTHON:-python3}
mkdir -p "$out"
status=0

# run NAME SECONDS PROGRAM ARG...
run() {
    local name=$1 seconds=$2 program=$3
    shift 3
    timeout --kill-after=5 "$seconds" "$python" "$here/$program" --out "$out" $commit "$@" >"$out/$name.log" 2>&1
    local ended=$?
    printf '%-10s %4d s  %s\n' "$name" "$SECONDS" "$([ $ended = 0 ] && echo ok || echo "ended with $ended: $out/$name.log")"
    [ $ended = 0 ] || status=1
}

run gemm 200 bench_gemm.py --against-cublas $theirs --seconds 180
run host 100 bench_host.py
run chain 80 bench_chain.py --seconds 60
run models 120 bench_gemm.py --cases "$here/models.json" --against-cublas $theirs --name models --seconds 100
run drawn 200 bench_gemm.py --draw 250 --seed 3 $theirs --name drawn --seconds 180
run autotune 150 autotune_gain.py --forget --seconds 130
run micro 120 micro/run.py --seconds 40
run layout 30 bench_layout.py
run quantize 60 bench_quantize.py
run batches 90 bench_batches.py
exit $status
