"""A store of SQLite as a database of a PostgreSQL server."""

from pathlib import Path

from sqlalchemy import create_engine, insert, select

from tools.chaos.rows import SQLITE, plain
from unifiednn_core.store import Store
from unifiednn_core.store.schema import Base, SchemaRow


def copy_store(source: Path, url: str) -> None:
    """Fill an empty database with what a store holds. Rows of history stay behind: their numbers begin anew."""
    Store(url).close()  # makes the tables
    origin = create_engine(f"{SQLITE}{source}")
    target = create_engine(plain(url).replace("postgresql://", "postgresql+psycopg://"))
    with origin.connect() as reads, target.begin() as writes:
        for table in Base.metadata.sorted_tables:
            numbered = table.autoincrement_column is not None and table.autoincrement_column.autoincrement is True
            if table.name == SchemaRow.__tablename__ or numbered:
                continue
            found = [dict(row) for row in reads.execute(select(table)).mappings()]
            if found:
                writes.execute(insert(table), found)
    origin.dispose()
    target.dispose()
