from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select

from tests.clock import SimulatedClock
from tests.unit.store.test_store import add_run
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store
from unifiednn_core.store.schema import MemoryRow, StrataRow
from unifiednn_core.store.telemetry import rows_to_drop, thin


@given(
    points=st.lists(st.tuples(st.floats(0.0, 1e6), st.integers(0, 2**40)), min_size=1, max_size=200),
    slots=st.integers(1, 20),
)
def test_peaks_and_both_ends_stay(points: list[tuple[float, int]], slots: int) -> None:
    samples = [MemoryRow(id=place, at_s=at_s, size_bytes=size) for place, (at_s, size) in enumerate(sorted(points))]
    dropped = set(rows_to_drop(samples, slots))
    kept = [sample for sample in samples if sample.id not in dropped]
    assert len(kept) <= slots + 2
    assert max(sample.size_bytes for sample in kept) == max(sample.size_bytes for sample in samples)
    assert (kept[0], kept[-1]) == (samples[0], samples[-1])


def test_a_run_of_days_has_no_more_rows_than_can_be_drawn_and_no_stretch_without(home: Home) -> None:
    store, most, thinned = Store.open(home, SimulatedClock()), 200, 0
    add_run(store, "r")
    add_run(store, "other")
    with store.telemetry._database.write() as session:
        session.execute(
            insert(MemoryRow), [{"hybrid_id": "other", "at_s": 1.0, "source": "PSS", "size_bytes": 9}] * 300
        )
        for place in range(2000):
            size = 10_000 if place == 777 else place % 50
            at = {"hybrid_id": "r", "at_s": 0.3 * place, "source": "PSS"}
            session.execute(insert(MemoryRow), [{**at, "size_bytes": size}, {**at, "source": "GPU", "size_bytes": 1}])
            session.execute(insert(StrataRow), [{**at, "total_bytes": size, "strata": {"context": place}}])
            before = session.connection().exec_driver_sql("select total_changes()").scalar_one()
            thin(session, "r", most_rows=most)
            thinned += before != session.connection().exec_driver_sql("select total_changes()").scalar_one()
        for table, size in ((MemoryRow, MemoryRow.size_bytes), (StrataRow, StrataRow.total_bytes)):
            rows = session.execute(
                select(table.at_s, size).where(table.hybrid_id == "r", table.source == "PSS").order_by(table.at_s)
            ).all()
            assert most // 2 <= len(rows) <= most
            assert max(rows, key=lambda row: row[1])[0] == 0.3 * 777
            steps = [after[0] - before[0] for before, after in pairwise(rows)]
            assert max(steps) <= 3 * 0.3 * 2000 / (most // 2)
        kept = session.scalars(select(StrataRow).where(StrataRow.total_bytes == 10_000)).one()
        assert kept.strata == {"context": 777}, "a row stays as it is, or goes"
        untouched = session.scalars(select(MemoryRow.id).where(MemoryRow.hybrid_id == "other")).all()
        assert len(untouched) == 300, "another hybrid is another matter"
    assert thinned <= 3 * 2000 / (most // 2 - 2), "of three curves; history is not written anew with each sample"
