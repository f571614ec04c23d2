"""The database that queries run in: what is loaded, and how."""

import duckdb
import pyarrow as pa
import pytest

from forensics import shut_database as shut


class Heard:
    """A connection that says in how many pieces each table came."""

    def __init__(self, database: duckdb.DuckDBPyConnection, pieces: list[int]) -> None:
        self._database, self._pieces = database, pieces

    def __enter__(self) -> "Heard":
        return self

    def __exit__(self, *error: object) -> None:
        self._database.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)

    def register(self, name: str, table: pa.Table) -> None:
        self._pieces.append(table["n"].num_chunks)
        self._database.register(name, table)


@pytest.mark.parametrize(("small", "pieces"), [(shut._SMALL, 1), (0, 50)])
def test_a_table_of_many_pieces_is_loaded_in_one_unless_it_is_large(monkeypatch, small, pieces):
    heard, connect = [], duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda *at, **more: Heard(connect(*at, **more), heard))
    monkeypatch.setattr(shut, "_SMALL", small)
    table = pa.table({"n": pa.chunked_array([[n] for n in range(50)], pa.int64())})
    with shut.shut_database({"numbers": table}, threads=1) as database:
        assert database.execute("SELECT count(*), sum(n) FROM numbers").fetchall() == [(50, 1225)]
    assert heard == [pieces]
