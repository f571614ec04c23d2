"""The query library as a page of documentation: `python -m forensics.library_page > docs/query-library.md`.

Invariant: everything on it comes from the queries' front matter.
"""

from __future__ import annotations

from forensics.catalogue import Query, load_queries

HEAD = """# The query library

Made from the front matter of `forensics/queries/*.sql` by `python -m forensics.library_page > docs/query-library.md`;
`forensics show NAME` prints a query with its SQL. Every query sees the tables of [ledger.md](ledger.md), `gaps`, and where
it says so the verdicts ([verdicts.md](verdicts.md)). Rows that are *findings* are exit code 1: of a healthy system there
are none.

"""


def markdown_page() -> str:
    """The whole page."""
    queries = load_queries()
    index = "".join(f"- [{query.name}](#{query.name}): {query.question}\n" for query in queries)
    return HEAD + index + "".join(_section(query) for query in queries)


def _section(query: Query) -> str:
    reads = "the verdicts and the record" if query.judges else "the record"
    lines = [
        f"\n## {query.name}\n",
        f"{query.question} Reads {reads}; its rows are {query.rows}s; {query.status}, version {query.version}, since {query.since}.\n",
    ]
    if query.parameters:
        lines += ["| parameter | type | default | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{p.name}` | {p.kind} | {'required' if p.required else '' if p.default is None else f'`{p.default}`'} | {p.meaning} |"
            for p in query.parameters.values()
        ]
        lines.append("")
    lines += ["| column | unit | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {column.unit} | {column.meaning} |" for name, column in query.columns.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown_page(), end="")
