"""Each place where torch keeps a precision of float32 is put back, on a machine without a GPU, too."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from tests.gpu.checks import precision_of_each_place
from unifiednn_core.engine.process_state import _precision

CHANGES: dict[str, Callable[[], object]] = {
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "cuBLAS": lambda: torch._C._set_cublas_allow_tf32(True),
    "cuDNN": lambda: torch._C._set_cudnn_allow_tf32(False),
    "all": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    **{
        f"{backend}, {part}": partial(torch._C._set_fp32_precision_setter, backend, part, to)
        for backend, to in (("cuda", "tf32"), ("mkldnn", "bf16"))
        for part in ("all", "matmul", "conv", "rnn")
    },
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("allowed", [False, True])
def test_the_precision_of_each_place_is_put_back(change: Callable[[], object], allowed: bool) -> None:
    settings = _precision("cuda")  # of this process, whatever a case does
    try:
        torch._C._set_cudnn_allow_tf32(allowed)  # False is the profile `exact`
        before, restored = precision_of_each_place(), _precision("cuda")
        kept = [setting.read() for setting in restored]
        change()
        for setting, value in zip(restored, kept, strict=True):
            setting.write(value)
        assert precision_of_each_place() == before
    finally:
        for setting in settings:
            setting.write(None)
