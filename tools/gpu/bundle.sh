#!/usr/bin/env bash
# Fills .gpu/ with what a GPU machine without a network lacks: wheels for its Python, and data. `bundle.sh DATA`
# DATA is a folder with mnist.npz and cifar10_12k.npz. torch, numpy, pandas and pytest are expected there.
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${1:?name the folder that holds mnist.npz and cifar10_12k.npz: make gpu-bundle DATA=FOLDER}
for file in mnist.npz cifar10_12k.npz; do
  [ -f "$data/$file" ] || { echo "$data has no $file" >&2; exit 2; }
done
rm -rf .gpu; mkdir -p .gpu/wheels .gpu/data
git rev-parse HEAD >.gpu/COMMIT
# What the product and tests/gpu import, and what that imports in turn.
packages="annotated-doc annotated-types altair anyio attrs blinker cachetools certifi click gitdb GitPython greenlet h11 httpcore httpx idna itsdangerous
  jsonschema jsonschema-specifications markdown-it-py mdurl narwhals prometheus_client psutil pydantic pydantic_core Pygments pytest-timeout
  python-multipart referencing rich rpds-py shellingham smmap SQLAlchemy starlette streamlit typer typing-inspection typing_extensions
  uvicorn watchdog websockets"
wanted=()
for package in $packages; do
  wanted+=("$(grep -i "^$package==" constraints.txt)")
done
platforms=(); for glibc in 28 27 24 17 12 5; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
"${PYTHON:-python3}" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --implementation cp \
  --python-version "${GPU_PYTHON:-3.12}" "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
  --dest .gpu/wheels "${wanted[@]}" py-spy
cp "$data/mnist.npz" .gpu/data/
"${PYTHON:-python3}" - "$data/cifar10_12k.npz" .gpu/data/cifar10_12k.npz <<'PY'
import sys
import numpy as np
with np.load(sys.argv[1]) as file:  # fewer images, so that .gpu stays small enough to be carried
    np.savez_compressed(sys.argv[2], **{name: file[name][: 5000 if name.startswith("train_") else 1000]
                                        for name in file.files if name.startswith(("train_", "test_"))})
PY
du -sh .gpu
