"""Whether the networks of a comparison are those that torch itself reads. Answers are kept by content. No torch here.

Hybrid and baselines build a `.pt2` with the same reader, so that their equal weights say nothing about it.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from unifiednn_core.base.errors import IntakeFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import client
from unifiednn_core.preflight.kept_check import kept
from unifiednn_core.preflight.report import OracleJob, OracleReport
from unifiednn_core.spec.run import PREPARED, RunSpec, SubModelSpec

PT2 = "pt2"
_SHARED_CODE = "plain PyTorch reads its weights itself, but builds it with the same Python code"
_SHARED_READER = "plain PyTorch builds it with the reader of the hybrid"


def ask_torch(home: Home, spec: RunSpec, formats: Mapping[str, str]) -> dict[str, OracleReport]:
    """Ask for each sub-model in `formats`, which maps names to formats; takes seconds for each new network."""
    return {part.name: _asked(home, part, formats[part.name]) for part in spec.submodels if part.name in formats}


def _asked(home: Home, part: SubModelSpec, model_format: str) -> OracleReport:
    if model_format != PT2:
        text = _SHARED_READER if part.architecture is None else _SHARED_CODE
        return OracleReport(answer="not applicable", text=text)
    model, data = (home.file(name.removeprefix("sha256:")) for name in (part.model, part.train_data))
    job = OracleJob(model=model, train_data=data, submodel=part, scratch=home.answers.resolve())

    def ask() -> OracleReport:
        try:
            return client.ask_torch(job)
        except IntakeFailed as error:
            return OracleReport(answer="none", text=str(error).rstrip("."))

    facts = [
        "oracle",
        _readers(),
        version("torch"),
        part.model,
        part.train_data,
        part.model_dump(mode="json", include=PREPARED),
    ]
    return kept(home.answers, facts, OracleReport, ask, lambda report: report.answer != "none")


@cache
def _readers() -> str:
    """Hash of the code that reads models, and of the code that compares it with torch's."""
    package = Path(__file__).parents[1]
    files = (package / "preflight" / "oracle.py", *sorted((package / "formats").rglob("*.py")))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
