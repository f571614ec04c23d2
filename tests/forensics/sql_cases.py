"""Hand-built cases for the SQL engine: all cases of a module are judged in one run, as parts that cannot touch each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evidence_builder import DECODE, PREFILL, EvidenceBuilder
from merged_evidence import merged

from forensics import sql_engine

ANN_TAG, BOB_TAG, CID_TAG = 7, 8, 9


class Scene(EvidenceBuilder):
    """Ann decodes: reserve at 10 under ANN_TAG, bind at 20, runs (22, 25] and (25, 30] at times 221 to 248 and 251 to 299.

    Bob and Cid are there too, on both workers; `page` is Ann's page, `far` one of the prefill worker.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ann, self.bob, self.cid = (self.request(rid) for rid in ("ann", "bob", "cid"))
        self.far_ann, self.far_bob, self.far_cid = (self.request(rid, PREFILL) for rid in ("ann", "bob", "cid"))
        self.runs(self.ann, (22, 25), (25, 30))
        self.page, self.far = self.cell(1), self.cell(5, PREFILL)
        self.life(ANN_TAG, self.page, self.ann, 10)

    def own(self, lo: int, hi: int, **columns: Any) -> int:
        """Ann writes her page."""
        return self.write(self.page, self.ann, ANN_TAG, hi, lo, **columns)

    def bobs(self, lo: int, hi: int, **columns: Any) -> int:
        """Bob writes Ann's page."""
        return self.write(self.page, self.bob, BOB_TAG, hi, lo, **columns)

    def reads(self, tag: int = ANN_TAG, **columns: Any) -> int:
        """Ann reads her page."""
        return self.read(self.page, self.ann, tag, 20, **columns)

    def sent(self, tag: int = ANN_TAG, lo: int = 12, hi: int = 15, src_tag: int = 70, **columns: Any) -> int:
        """A transfer lands on Ann's page; it read `far` under `src_tag` between 40 and 50."""
        columns = {"mover": 0, "post_seq": 40, "done_seq": 50} | columns
        src = columns.pop("src", self.far)
        return self.landing(self.page, tag, lo, hi, src, src_tag, columns.pop("window", (40, 50)), **columns)


Build = Callable[[Scene], Any]


def judge(cases: Mapping[str, Build]) -> dict[str, list[dict[str, Any]]]:
    """Ann's findings per case, her names without the number of the part."""
    scenes = []
    for build in cases.values():
        scene = Scene()
        build(scene)
        scenes.append(scene.build())
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    names = list(cases)
    for row in sql_engine.run(merged(scenes)).to_pylist():
        for column in ("rid", "donor_rid"):
            if row[column] is not None and "." in row[column]:
                row[column] = row[column].split(".", 1)[1]
        found[names[row["epoch"]]].append(row)
    return found


def brief(rows: list[dict[str, Any]], *columns: str, rid: str = "ann") -> list[tuple[Any, ...]]:
    """The named columns of one response's findings on the decode worker."""
    return [tuple(row[c] for c in columns) for row in rows if row["rid"] == rid and row["worker"] == DECODE[0]]
