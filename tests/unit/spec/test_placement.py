from typing import Any

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import MIB
from unifiednn_core.compare.fingerprint import asked_sha256
from unifiednn_core.spec.placement import devices_claimed, runs_of
from unifiednn_core.spec.run import RunSpec, parse_run


def of(placement: dict[str, Any] | None, **more: Any) -> RunSpec:
    one = {"name": "net", "model": "m", "train_data": "t", **more}
    return parse_run({"submodels": [one if placement is None else one | {"placement": placement}]})


def test_a_placement_has_a_limit_for_each_device_and_a_plan_in_runs() -> None:
    for cap, caps in ((1.5, (1.5, 1.5)), ([1, 2], (1, 2)), (None, (None, None))):
        [one] = of({"devices": 2, "cap_mib": cap}).submodels
        assert one.placement is not None
        assert one.placement.caps_bytes == tuple(None if each is None else int(each * MIB) for each in caps)
        assert one.placement.device_of == ()
    device_of = (0, 0, 1, 1, 1, 0)
    assert runs_of(device_of) == [[0, 2], [1, 3], [0, 1]]
    planned = of({"devices": 2, "plan": runs_of(device_of)})
    assert planned.submodels[0].placement.device_of == device_of  # type: ignore[union-attr]
    assert parse_run(planned.model_dump(mode="json")) == planned


@pytest.mark.parametrize(
    ("placement", "more", "told"),
    [
        ({"devices": 0}, {}, "placement.devices"),
        ({"devices": 2, "cap_mib": [1, 2, 3]}, {}, "placement.devices: There are 3 limits"),
        ({"devices": 2, "plan": [[2, 5]]}, {}, "placement.plan: The plan names a device that is not there"),
        ({"devices": 2}, {"split": {"at": ["1"]}}, "placement: A split network cannot be placed"),
        ({"devices": 2}, {"hyperparameters": {"techniques": ["dropit"]}}, "placement: A placement counts what"),
    ],
)
def test_mistakes_are_told_at_their_entry(placement: dict[str, Any], more: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput) as caught:
        of(placement, **more)
    assert any(told in f"{one.field}: {one.message}" for one in caught.value.findings), caught.value.findings


def test_devices_that_a_run_claims() -> None:
    claims = {"devices": 3, "claim": True}
    assert devices_claimed(of(claims).model_dump(mode="json")["submodels"]) == 3
    assert devices_claimed(of({"devices": 3}).model_dump(mode="json")["submodels"]) == 1
    assert devices_claimed(of(None).model_dump(mode="json", exclude_none=True)["submodels"]) == 1
    document = {"hybrid": "shared", "submodels": [{"name": "a", "model": "m", "train_data": "t", "placement": claims}]}
    with pytest.raises(BadInput, match="A shared hybrid is on one device"):
        parse_run(document)


def test_runs_differ_by_devices_and_limits_but_not_by_the_plan() -> None:
    plain, two, planned, tight = (
        asked_sha256(of(one))
        for one in (None, {"devices": 2}, {"devices": 2, "plan": [[0, 3]]}, {"devices": 2, "cap_mib": 5})
    )
    assert two == planned and len({plain, two, tight}) == 3
