"""What stands side by side at which width: a pane, a list with its detail, a workspace."""

import pytest
from pilots import app_of, opened, until, worked_out
from text_snapshot import screen_lines, screen_text

from console.tui.layout import BREAKPOINTS, has_detail, is_workspace


def test_the_style_sheet_and_the_lines_change_at_the_same_widths():
    for width, classes in ((99, "-narrow"), (100, "-middle"), (139, "-middle"), (140, "-wide")):
        assert [name for begins, name in BREAKPOINTS if begins <= width][-1] == classes
        assert (has_detail(width), is_workspace(width)) == (classes != "-narrow", classes == "-wide")


@pytest.mark.parametrize(
    ("width", "beside", "summary"), [(99, False, False), (100, True, False), (139, True, False), (140, True, True)]
)
async def test_from_100_columns_a_list_has_its_detail_beside_it(here, tmp_path, width, beside, summary):
    app = app_of(here, tmp_path)
    async with app.run_test(size=(width, 30)) as pilot:
        await opened(pilot, app)
        await until(pilot, lambda: "I-9d63cb7e" in screen_text(app), "the list")
        assert ("RESPONSES OF I-9d63cb7e" in screen_text(app)) == beside
        await pilot.press("enter")
        await worked_out(pilot)
        await until(pilot, lambda: "READ" in screen_text(app), "the order of events")
        lines = screen_lines(app)
        assert any("── RESPONSES" in line and "PAGES ◂ DONORS" in line for line in lines) == beside
        assert any("mechanism" in line or "cause      M1" in line for line in lines) == summary
        assert any("✗ pg     1" in line and "resp-a1" in line for line in lines), "the donor of the page is in sight"
        for pane in ("#pages", "#events"):
            shown = app.screen.query_one(pane)
            assert shown.region.right <= width
            assert shown.size.width >= (60 if beside else width)
