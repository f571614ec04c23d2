"""By which columns a view may be put in order: those of any table that there is.

Invariant: an order by a column that no table has is a fault, and said; one that another screen has waits until it is seen.
"""

from __future__ import annotations

from console.core.detectors import detectors_sheet
from console.core.flows import flows_of
from console.core.page_tables import allocations_sheet, marks_sheet
from console.core.printable import printable
from console.core.rollup import Rollup
from console.core.run_tables import RUN_TABLES
from console.core.view import View


def sort_fault(known: Rollup, view: View) -> str:
    """What is wrong with the order that a view asks for, in words; else empty."""
    if view.sort is None:
        return ""
    here = [*known.sheets.values(), detectors_sheet(known.tables["detectors"])]
    rows = [sheet.rows for sheet in here]
    rows += [flows_of(()), marks_sheet((), 0).rows, allocations_sheet((), 0).rows]
    columns = {name for table in rows for name in table.column_names}
    columns |= {name for schema in RUN_TABLES.values() for name in schema.names}
    return "" if view.sort.column in columns else f"there is no column {printable(view.sort.column)} in any table"
