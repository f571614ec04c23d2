"""Texts that are safe to draw, colours that can be told apart, and the action table."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.keys import Keys, _character_to_key

from console.core import cheat_sheet
from console.core.actions import ACTIONS, actions_of, hints_of
from console.core.commands import CommandError, completions, parse_command
from console.core.marks import (
    OTHER_LETTER,
    OWNER_COLOURS,
    OWNER_LETTERS,
    SEVERITY_MARKS,
    VERDICT_MARKS,
    LinkStyle,
    Severity,
)
from console.core.mechanisms import MECHANISMS, mechanism, title
from console.core.palettes import THEMES, glyphs, theme_for
from console.core.places import TABS, Place
from console.core.printable import printable, ranges, shorten
from console.core.times import age, clock, clock_ms, duration, moment
from forensics.verdict import Verdict


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_printable_text_is_as_wide_as_it_is_long_and_obeyed_by_no_terminal(text):
    drawn = printable(text)
    assert cell_len(drawn) == len(drawn)
    assert drawn.isprintable()


@settings(deadline=None, derandomize=True)
@given(st.text(), st.text())
def test_different_ids_never_look_alike(one, other):
    assert (printable(one) == printable(other)) == (one == other)


def test_an_escape_sequence_is_shown_not_sent():
    assert printable("\x1b[31mred\x1b[0m\r\n") == "\\x1b[31mred\\x1b[0m\\r\\n"
    assert printable("日本\u202e") == "\\u65e5\\u672c\\u202e"
    assert printable(None) == "–"


def test_ids_are_cut_in_the_middle():
    assert shorten("resp-0123456789", 9) == "resp…6789"
    assert shorten("short", 9) == "short"
    assert all(len(shorten("x" * 50, width)) <= width for width in range(60))


def test_page_ranges():
    assert ranges([]) == ""
    assert ranges([7, 1, 2, 3, 9]) == "1–3, 7, 9"


@pytest.mark.parametrize(
    ("us", "words"),
    [
        (0, "0.0 ms"), (1_234, "1.2 ms"), (320_000, "320 ms"), (3_200_000, "3.2 s"), (250_000_000, "4m 10s"),
        (7_500_000_000, "2h 05m"), (1_137_600_000_000, "13d 4h"), (None, "–"),
    ],
)  # fmt: skip
def test_durations(us, words):
    assert duration(us) == words


def test_times_are_utc_and_say_so():
    t = 1_790_000_000_123_456
    assert (clock(t), clock_ms(t), moment(t)) == ("14:13:20Z", "14:13:20.123", "2026-09-21 14:13:20.123Z")
    assert (age(-5), age(59_999_999), age(61_000_000)) == ("0 s", "59 s", "1m 01s")


def test_every_class_has_words():
    assert all(f"M{i}" in MECHANISMS for i in range(1, 15))
    assert title("M3") == "M3 late write"
    assert title("record lost") == "record lost"
    assert title("P0") == "P0 shared cache"
    assert title("detector D8") == "detector D8"
    assert mechanism("M99").code == "M99"


# Machado et al. 2009, severity 1.0, on linear RGB.
DEFICIENCIES = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours, deficiency: np.ndarray) -> float:
    seen = [lab(deficiency @ linear(colour)) for colour in colours]
    return min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2))


def contrast(one: str, other: str) -> float:
    y = [float(linear(colour) @ np.array([0.2126, 0.7152, 0.0722])) + 0.05 for colour in (one, other)]
    return max(y) / min(y)


COLOURED = [theme for theme in THEMES.values() if theme.ground]


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_severities_verdicts_and_owners_can_be_told_apart_by_everybody(deficiency, theme):
    for colours in (theme.severities.values(), theme.verdicts.values(), (*theme.owners, theme.other)):
        assert nearest(list(colours), DEFICIENCIES[deficiency]) >= 12


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_what_is_written_in_a_colour_can_be_read(theme):
    for colour in (theme.ink, theme.quiet, *theme.severities.values(), *theme.verdicts.values()):
        assert contrast(colour, theme.ground) >= 4.5, colour
    for owner in (*theme.owners, theme.other):
        assert contrast(theme.letter_on(owner), owner) >= 4.5, owner


def test_sixteen_colours_and_none_leave_glyphs_that_say_the_same():
    ansi = THEMES["ansi"]
    assert len(set(ansi.severities.values())) == len(Severity)
    assert len(set(ansi.verdicts.values())) == len(Verdict)
    assert set(ansi.owners) == {""}
    assert all(len(set(set_)) == len(set_) for set_ in glyphs().values())


def test_no_color_wins_over_any_theme():
    assert theme_for("light", {"NO_COLOR": "1"}).name == "plain"
    assert theme_for("light", {"NO_COLOR": ""}).name == "light"
    assert theme_for(None, {}).name == "dark"
    with pytest.raises(KeyError):
        theme_for("pink", {})


def test_every_colour_has_a_glyph_and_a_word_of_its_own():
    assert set(VERDICT_MARKS) == set(Verdict)
    for marks in (SEVERITY_MARKS, VERDICT_MARKS):
        glyphs = [mark.glyph for mark in marks.values()]
        assert len(set(glyphs)) == len(glyphs)
        assert all(cell_len(glyph) == 1 for glyph in glyphs)
    assert len({style.stroke for style in LinkStyle}) == len(LinkStyle)
    assert len(set(OWNER_LETTERS) | {OTHER_LETTER}) == len(OWNER_COLOURS) + 1


def test_no_key_means_two_things_on_one_screen():
    for place in Place:
        keys = [key for action in actions_of(place) for key in action.keys]
        assert len(set(keys)) == len(keys)
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    named = {_character_to_key(chr(code)) for code in range(33, 127)} | {str(key.value) for key in Keys} | {"space"}
    assert {key for action in ACTIONS for key in action.keys} <= named


def test_every_command_is_one_actions_and_every_action_can_be_reached():
    commands = [action.command for action in ACTIONS if action.command]
    assert len(set(commands)) == len(commands)
    assert [action.id for action in ACTIONS if not action.keys and not action.command] == []
    assert {place.value for place in TABS} <= set(commands)
    assert [action.keys for action in ACTIONS[: len(TABS)]] == [(str(n),) for n in range(1, len(TABS) + 1)]


@pytest.mark.parametrize(
    ("text", "action", "argument"),
    [
        (":incident I-98584c01", "incident", "I-98584c01"), ("held", "go_held", ""), (":filter", "filter", ""),
        (": silence 2h  known ", "silence", "2h  known")],
)  # fmt: skip
def test_commands_are_read(text, action, argument):
    asked = parse_command(text)
    assert (asked.action.id, asked.argument) == (action, argument)


@pytest.mark.parametrize(
    ("text", "words"),
    [(":incdent x", "did you mean :incident"), (":quit now", "takes nothing"), (":silence", "takes LENGTH"),
     (":", "there is no command"), ("zzz", "lists what there is")],
)  # fmt: skip
def test_what_is_no_command_says_what_it_takes(text, words):
    with pytest.raises(CommandError, match=words):
        parse_command(text)


def test_commands_are_completed():
    assert completions(":in") == ("incidents", "incident")


def test_the_cheat_sheet_is_current():
    written = (Path(__file__).parents[2] / "docs" / "console-keys.md").read_text()
    assert written == cheat_sheet.page(), "python -m console.core.cheat_sheet > docs/console-keys.md"


def test_the_footer_shows_at_most_eight_hints_and_always_help_and_quit():
    for place in Place:
        hints = [action.id for action in hints_of(place)]
        assert len(hints) <= 8
        assert {"help", "quit"} <= set(hints)


_XTERM = {
    "black": "#000000", "red": "#cd0000", "yellow": "#cdcd00", "blue": "#0000ee", "magenta": "#cd00cd", "white": "#e5e5e5",
    "bright_black": "#7f7f7f", "bright_red": "#ff0000", "bright_yellow": "#ffff00", "bright_cyan": "#00ffff",
}  # fmt: skip
_SOLARIZED = {
    "black": "#073642", "red": "#dc322f", "yellow": "#b58900", "blue": "#268bd2", "magenta": "#d33682", "white": "#eee8d5",
    "bright_black": "#002b36", "bright_red": "#cb4b16", "bright_yellow": "#657b83", "bright_cyan": "#93a1a1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("theme", "ground", "sixteen"),
    [("ansi", "#000000", _XTERM), ("ansi", "#002b36", _SOLARIZED), ("ansi-light", "#ffffff", _XTERM),
     ("ansi-light", "#fdf6e3", _SOLARIZED)],
)  # fmt: skip
def test_the_terminals_own_colours_can_be_read_on_its_ground(theme, ground, sixteen):
    for name in {*THEMES[theme].severities.values(), *THEMES[theme].verdicts.values()}:
        assert contrast(sixteen[name], ground) >= 3, name
    assert len(set(THEMES[theme].verdicts.values())) == 5
