"""A dozen pictures with their colours, as SVG: four screens, three grounds."""

import re

import pytest
from pilots import app_of, opened, worked_out
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from console.core.places import Place
from console.core.view import View


class SvgExtension(SingleFileSnapshotExtension):
    """One .svg file per picture, without the web font that Textual's export asks for."""

    file_extension = "svg"
    _write_mode = WriteMode.TEXT

    def serialize(self, data, **_):
        return re.sub(r"@font-face \{.*?\}\s*", "", data, flags=re.DOTALL)


@pytest.mark.parametrize("theme", ["dark", "light", "contrast"])
@pytest.mark.parametrize("place", [Place.OVERVIEW, Place.INCIDENTS, Place.INCIDENT, Place.LATENCY])
async def test_pictures(place, theme, here, tmp_path, finished, snapshot):
    incident = finished.incidents[0].id if place is Place.INCIDENT else None
    app = app_of(here, tmp_path, view=View(place=place, incident=incident), theme=theme)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, app)
        await pilot.pause()
        if place is Place.INCIDENT:
            await worked_out(pilot)
        picture = app.export_screenshot()
        assert "cdnjs" not in SvgExtension().serialize(picture)
        assert picture == snapshot.use_extension(SvgExtension)
