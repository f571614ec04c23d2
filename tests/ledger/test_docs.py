"""docs/ledger.md lists every table, column and op of the schema, and no others."""

import re
from pathlib import Path

from engine.ledger.schema import COMMON, OPS, TABLES

TEXT = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()


def test_the_page_on_the_ledger_is_the_schema():
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", TEXT, re.M | re.S))
    assert list(sections) == list(TABLES)
    for table, section in sections.items():
        columns = re.findall(r"^\| (\w+) \| (\S.*?) \| \S.* \|$", section, re.M)
        common = [name for name, _ in COMMON] + ["op"]
        expected = [(f.name, str(f.type)) for f in TABLES[table] if f.name not in common]
        assert [c for c in columns if c[0] != "column"] == expected
        assert tuple(re.findall(r"`(\w+)`", section.split("`op`:")[1].split("\n")[0])) == OPS[table]
