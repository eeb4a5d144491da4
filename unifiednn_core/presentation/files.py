"""Files of the library and trained models as the values that are shown."""

from unifiednn_core.store.schema import FileRow, RunRow, SubModelRow
from unifiednn_core.views.runs import FileView, TrainedView


def file_view(row: FileRow) -> FileView:
    """One file of the library."""
    return FileView(
        sha256=row.sha256,
        kind=row.kind,
        filename=row.filename,
        format=row.format,
        size_bytes=row.size_bytes,
        created_at_s=row.created_at_s,
        facts=row.facts,
    )


def trained_view(run: RunRow, row: SubModelRow) -> TrainedView:
    """One separated model."""
    return TrainedView(
        run_id=run.id,
        run_name=run.name,
        submodel=row.name,
        filename=row.artifact or "",
        size_bytes=row.artifact_bytes or 0,
        state_sha256=row.state_sha256 or "",
        test_accuracy=row.test_accuracy,
        created_at_s=row.artifact_at_s or run.created_at_s,
    )
