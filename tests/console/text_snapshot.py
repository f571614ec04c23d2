"""Text snapshots of terminal screens: one private attribute of Textual, read in one place."""

from __future__ import annotations

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.app import App


class TextExtension(SingleFileSnapshotExtension):
    """One .txt file per screen."""

    file_extension = "txt"
    _write_mode = WriteMode.TEXT

    def serialize(self, data, **_):
        return data


def screen_lines(app: App) -> list[str]:
    """The screen as its lines of text, without colour."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def screen_text(app: App) -> str:
    """The screen as text; asserts that every line is exactly as wide as the terminal."""
    lines = screen_lines(app)
    width, height = app.size
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}, [line for line in lines if len(line) != width]
    return "\n".join(line.rstrip() for line in lines) + "\n"
