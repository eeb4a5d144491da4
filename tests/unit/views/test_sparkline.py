"""A curve without axes: in its box whatever the values, with gaps where nothing was sampled."""

import random
import re
from urllib.parse import unquote

import pytest

from unifiednn_core.views.sparkline import HEIGHT, WIDTH, sparkline

CURVE = re.compile(r'<polyline points="([^"]*)"')


def lines(drawn: str) -> list[list[tuple[float, float]]]:
    found = CURVE.findall(unquote(drawn))
    return [[tuple(map(float, pair.split(","))) for pair in one.split()] for one in found]  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_inside_of_the_box_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    before = sorted((chance.uniform(-50, 700) for _ in range(chance.randint(0, 80))), reverse=True)
    values = [chance.choice([None, chance.uniform(-1, 2)]) for _ in before]
    for line in lines(sparkline(before, values, 600.0, "x")):
        assert all(-1 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)
        assert [x for x, _ in line] == sorted(x for x, _ in line)


def test_more_is_higher_and_gaps_are_empty() -> None:
    [line] = lines(sparkline([30, 20, 10, 0], [0.0, 0.5, 1.0, 1.0], 600.0, "x"))
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True) and line[-1][0] == WIDTH
    assert len(lines(sparkline([300, 290, 100, 90], [0.5] * 4, 600.0, "x"))) == 2, "nothing was sampled for long"
    assert len(lines(sparkline([30, 20, 10], [0.5, None, 0.5], 600.0, "x"))) == 2
    assert lines(sparkline([], [], 600.0, "x")) == []
