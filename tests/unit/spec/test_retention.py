from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.spec.retention import DAY_S, GIB, Kept, Retention, due, shortfall

NOW_S = 1000 * DAY_S
RUNS = st.lists(
    st.builds(
        lambda place, days, kept, more: Kept(f"r{place}", "run", NOW_S - days * DAY_S, kept, kept + more),
        st.integers(0, 1000),
        st.floats(0, 100),
        st.integers(0, 3 * GIB),
        st.integers(0, GIB),
    ),
    max_size=12,
    unique_by=lambda run: run.run_id,
)
DAYS = st.none() | st.floats(0.5, 90)


@given(runs=RUNS, keep=DAYS, checkpoints=DAYS, limit=st.none() | st.floats(0.1, 20), rest=st.integers(0, 5 * GIB))
def test_what_is_too_old_goes_and_the_limit_takes_the_oldest_first(runs, keep, checkpoints, limit, rest) -> None:
    rules = Retention(keep_runs_days=keep, keep_checkpoints_days=checkpoints, home_limit_gib=limit)
    home_bytes = rest + sum(run.size_bytes for run in runs)
    found = due(rules, runs, home_bytes, NOW_S)
    gone = {one.run.run_id: one for one in found}
    assert len(gone) == len(found) and rules.is_off <= (not found)
    for run in runs:
        age = (NOW_S - run.ended_at_s) / DAY_S
        one = gone.get(run.run_id)
        if keep is not None and age > keep:
            assert one is not None and one.what == "run"
        elif limit is None:
            old = checkpoints is not None and age > checkpoints and run.checkpoint_bytes > 0
            assert (one is not None and one.what == "checkpoints") == old
    left = home_bytes - sum(one.size_bytes for one in found)
    if limit is not None and left > rules.home_limit_bytes:
        assert all("GiB" not in one.why for one in found), "what cannot reach the limit takes nothing"
        assert shortfall(rules, found, home_bytes)
    for one in found:
        young = NOW_S - one.run.ended_at_s < DAY_S
        assert not (young and one.what == "run" and "GiB" in one.why), "models of a day stay"
    assert [one.run.ended_at_s for one in found] == sorted(one.run.ended_at_s for one in found)
