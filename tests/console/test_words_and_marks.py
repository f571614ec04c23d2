"""Texts that are safe to draw, colours that can be told apart, and the action table."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.keys import Keys

from console.core.actions import ACTIONS, Place, actions_of, hints_of
from console.core.marks import (
    OTHER_COLOUR,
    OTHER_LETTER,
    OWNER_COLOURS,
    OWNER_LETTERS,
    SEVERITY_MARKS,
    VERDICT_MARKS,
    LinkStyle,
)
from console.core.mechanisms import MECHANISMS, mechanism, title
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


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_severities_and_owners_can_be_told_apart_by_everybody(deficiency, theme):
    severities = [getattr(mark, theme) for mark in SEVERITY_MARKS.values()]
    assert nearest(severities, DEFICIENCIES[deficiency]) >= 12
    assert nearest([*OWNER_COLOURS, OTHER_COLOUR], DEFICIENCIES[deficiency]) >= 12


@pytest.mark.parametrize(("theme", "ground"), [("dark", "#121212"), ("light", "#FFFFFF")])
def test_text_in_a_mark_colour_can_be_read(theme, ground):
    for mark in (*SEVERITY_MARKS.values(), *VERDICT_MARKS.values()):
        assert contrast(getattr(mark, theme), ground) >= 4.5, mark


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
    known = {str(key.value) for key in Keys}
    for action in ACTIONS:
        for key in action.keys:
            assert (
                len(key) == 1
                or key in known
                or key in ("right_curly_bracket", "left_curly_bracket", "full_stop", "question_mark", "comma", "space")
            )


def test_the_footer_shows_at_most_eight_hints_and_always_help_and_quit():
    for place in Place:
        hints = [action.id for action in hints_of(place)]
        assert len(hints) <= 8
        assert {"help", "quit"} <= set(hints)
