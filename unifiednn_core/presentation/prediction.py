"""What was predicted of a run's memory, as the value that is shown."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from unifiednn_core.views.memory import Prediction, SubModelPrediction

_OF_RUN, _OF_SUBMODEL = ({field.name for field in fields(view)} for view in (Prediction, SubModelPrediction))


def prediction_of(document: Mapping[str, Any]) -> Prediction | None:
    """Read `RunRow.prediction`; None for a run of which nothing was predicted, or by another version in other words."""
    try:
        known = {key: value for key, value in document.items() if key in _OF_RUN}
        submodels = tuple(
            SubModelPrediction(**{key: value for key, value in part.items() if key in _OF_SUBMODEL})
            for part in document["submodels"]
        )
        return Prediction(**{**known, "submodels": submodels})
    except (KeyError, TypeError):
        return None
