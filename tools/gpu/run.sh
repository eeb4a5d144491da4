#!/usr/bin/env bash
# All that needs a GPU, in at most ten minutes, the most valuable first; each result is in $OUT the moment it exists.
#   STEPS="env tests"  these steps alone       DRY=1  no GPU: tests are collected, imports tried, specs checked
set -u
cd "$(dirname "$0")/../.."
OUT=$(realpath -m "${OUT:-/tmp/unifiednn-gpu}"); SITE=${SITE:-/tmp/unifiednn-gpu-site}; DRY=${DRY:-}; PYTHON=${PYTHON:-python3}
STEPS=${STEPS:-env tests costs profile demo trio}
mkdir -p "$OUT"
exec > >(tee -a "$OUT/log.txt") 2>&1
say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
wanted() { [[ " $STEPS " == *" $1 "* ]]; }
if [ -z "$DRY" ] && [ ! -e "$SITE/.ready" ]; then  # a dry run uses this Python as it is
  mkdir -p "$SITE/unifiednn-0.1.0.dist-info"
  for wheel in .gpu/wheels/*.whl; do "$PYTHON" -m zipfile -e "$wheel" "$SITE"; done
  printf 'Metadata-Version: 2.1\nName: unifiednn\nVersion: 0.1.0\n' >"$SITE/unifiednn-0.1.0.dist-info/METADATA"
  touch "$SITE/.ready"
fi
export PYTHONPATH=$SITE:$PWD CUBLAS_WORKSPACE_CONFIG=:4096:8 PYTHONUNBUFFERED=1 NO_COLOR=1 COLUMNS=160
export STREAMLIT_GLOBAL_DEVELOPMENT_MODE=false  # Streamlit runs from unpacked wheels
UNIFIEDNN_COMMIT=$(cat .gpu/COMMIT 2>/dev/null || git rev-parse HEAD); export UNIFIEDNN_COMMIT
unifiednn() { "$PYTHON" -c 'import sys; sys.argv[0] = "unifiednn"; from unifiednn_core.cli.main import main; main()' "$@"; }
tests() { timeout "$1" "$PYTHON" -m pytest -q -p no:cacheprovider -m gpu -o addopts=--import-mode=importlib -o filterwarnings=default \
  --tb=short "${@:2}" >>"$OUT/tests.txt" 2>&1; say "tests ${*: -1}: exit $?, $(tail -1 "$OUT/tests.txt")"; }
compared() {  # NAME SPEC LIMIT_S: both baselines; the database goes with it, so that pages can be built with what a GPU sends
  export UNIFIEDNN_HOME=/tmp/unifiednn-gpu-$1
  if [ -n "$DRY" ]; then UNIFIEDNN_HOME=$(mktemp -d) unifiednn check "$2"; return; fi
  export -f unifiednn; export PYTHON
  timeout "$3" bash -c "unifiednn compare '$2' --json" >"$OUT/$1.json" 2>>"$OUT/log.txt"; say "$1: exit $?"
  tar czf "$OUT/$1-database.tgz" -C "$UNIFIEDNN_HOME" store
}
"$PYTHON" -m sample_models.build >/dev/null || say "samples: exit $?"
if [ -z "$DRY" ]; then  # NVML over time, beside everything
  fields=timestamp,utilization.gpu,memory.used,power.draw,temperature.gpu,clocks.sm,clocks.mem
  nvidia-smi --query-gpu=$fields --format=csv,noheader -lms 250 >"$OUT/nvml-device.csv" & WATCHES=$!
  nvidia-smi --query-compute-apps=timestamp,pid,used_memory --format=csv,noheader -lms 250 >"$OUT/nvml-processes.csv" & WATCHES="$WATCHES $!"
  trap 'kill $WATCHES' EXIT
fi
if wanted env; then
  { [ -n "$DRY" ] || nvidia-smi; "$PYTHON" -VV; "$PYTHON" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())'
    nproc; free -m; unifiednn doctor; } >"$OUT/env.txt" 2>&1; say env
fi
if wanted tests; then
  if [ -n "$DRY" ]; then tests 120 --collect-only tests/gpu
  else tests 130 -n 4 --dist loadfile --ignore tests/gpu/test_memory.py tests/gpu; tests 40 tests/gpu/test_memory.py; fi
fi
if wanted costs; then timeout 90 "$PYTHON" -m tools.gpu.step_costs ${DRY:+--dry-run} >"$OUT/costs.txt" 2>&1; say "costs: exit $?"; fi
if wanted profile && [ -z "$DRY" ]; then  # where a worker's time goes, by py-spy
  "$PYTHON" -m tools.gpu.specs long >/tmp/unifiednn-gpu-long.json && cp /tmp/unifiednn-gpu-long.json sample_models/.long.json
  UNIFIEDNN_HOME=/tmp/unifiednn-gpu-long unifiednn train sample_models/.long.json --json >"$OUT/profiled.json" 2>>"$OUT/log.txt" & TRAINING=$!
  for _ in $(seq 120); do worker=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | head -1); [ -n "$worker" ] && break; sleep 0.25; done
  sleep 2; spy=$(ls "$SITE"/py_spy*/scripts/py-spy); chmod +x "$spy"
  [ -n "${worker:-}" ] && timeout 15 "$spy" record -r 200 -d 5 -f raw -t -o "$OUT/profile.txt" --pid "$worker"
  wait "$TRAINING"; say "profile: exit $?"; rm sample_models/.long.json
fi
if wanted demo; then compared demo sample_models/demo.json 120; fi
if wanted trio; then
  trio=$(mktemp -d)
  "$PYTHON" -m tools.gpu.specs trio .gpu/data "$trio" ${DRY:+--device cpu} && compared trio "$trio/exact.json" 150
fi
say done
