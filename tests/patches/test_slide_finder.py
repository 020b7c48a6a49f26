"""The slide of a feature file: in a table, a folder, the file itself, or beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ips.errors import ConfigError, DataError
from ips.patches import SlideFinder
from ips.patches.slide_finder import address_key


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    touch(tmp_path / "slides" / "b.tif", tmp_path / "features" / "a.h5")
    bag = tmp_path / "features" / "a.h5"
    assert SlideFinder().find(bag, None) is None
    assert SlideFinder().find(bag, str(tmp_path / "gone" / "a.tif")) is None
    assert SlideFinder().find(tmp_path / "gone" / "a.h5", None) is None
    assert SlideFinder(tmp_path / "slides").find(bag, None) is None


def test_the_table_comes_first_then_the_folder_then_the_stored_path(tmp_path: Path) -> None:
    places = [tmp_path / name / "a.tif" for name in ("table", "folder/inside", "stored", "bags")]
    touch(*places)
    bag = tmp_path / "bags" / "a.h5"
    named, folder, stored, beside = places
    table = {address_key(bag): named}
    assert SlideFinder(tmp_path / "folder", table).find(bag, str(stored)) == named
    assert SlideFinder(tmp_path / "folder").find(bag, str(stored)) == folder
    assert SlideFinder().find(bag, str(stored)) == stored
    assert SlideFinder().find(bag, None) == beside


def test_files_match_by_the_stored_name_before_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "slides"
    touch(folder / "patient-1.tif", folder / "a.svs", folder / "masks" / "a.png")
    finder = SlideFinder(folder)
    assert finder.find("a.h5", "/elsewhere/patient-1.tif") == folder / "patient-1.tif"
    assert finder.find("a.h5", r"D:\scans\a.svs") == folder / "a.svs"
    assert finder.find("many.h5::patient-1", None) == folder / "patient-1.tif"
    with pytest.raises(DataError, match=r"a: .*a.svs and .*a.png could both be its slide"):
        finder.find("a.h5", None)


def test_a_table_may_name_a_slide_without_its_folder_and_ending(tmp_path: Path) -> None:
    touch(tmp_path / "slides" / "TCGA.01.svs")
    table = {address_key("a.h5"): tmp_path / "TCGA.01"}
    assert SlideFinder(tmp_path / "slides", table).find("a.h5", None) is not None
    assert SlideFinder(None, table).find("a.h5", None) is None


def test_contradictory_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--slides .*nowhere: there is no such folder"):
        SlideFinder(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="give that, too"):
        SlideFinder(level=1)
    with pytest.raises(ConfigError, match="give one of them"):
        SlideFinder(patch_size=256, level=1, mpp=0.5)
