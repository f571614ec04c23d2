"""What commands print, quoted in the samples' READMEs: `python sample_logs/quotes.py` runs them again.

A quote is a fenced block whose language is `console`: a line `$ COMMAND ARGUMENTS`, and below it all that is printed.
Invariant: nothing but quotes is changed, and a quote says what its command prints now.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import click
from catalogue import HERE, named
from click.testing import CliRunner

from engine.cli import cli as engine
from forensics.cli import cli as forensics

COMMANDS: dict[str, click.Command] = {"engine": engine, "forensics": forensics}
QUOTE = re.compile(r"^```console\n\$ (.+)\n((?:(?!```).*\n)*)```$", re.MULTILINE)


def printed(command: str) -> str:
    """What a command line of the project prints, stdout and stderr, run where its paths are right: at the top."""
    name, *arguments = shlex.split(command)
    result = CliRunner().invoke(COMMANDS[name], arguments, prog_name=name)
    return "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())


def quoted_again(text: str) -> str:
    """A README with every command run again."""
    return QUOTE.sub(lambda quote: f"```console\n$ {quote[1]}\n{printed(quote[1])}```", text)


PAGE = HERE.parent / "docs" / "investigation.md"
"""Quotes what is printed of the large sample."""


def main(names: tuple[str, ...]) -> None:
    """Renew the quotes in the READMEs of these samples (none: all but the large ones), and with a large one's the page."""
    os.chdir(HERE.parent)
    if any(sample.large for sample in named(names)) and names:
        PAGE.write_text(quoted_again(PAGE.read_text()))
    for sample in named(names):
        readme: Path = sample.folder / "README.md"
        if names or not sample.large:
            readme.write_text(quoted_again(readme.read_text()))
            print(f"{readme.relative_to(HERE)}: quotes renewed", file=sys.stderr)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
