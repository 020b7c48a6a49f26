"""Annotations of the Swedish traffic signs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ips.data.traffic_sign_annotations import read_annotations, read_photos
from ips.errors import DataError


def test_numbers_may_end_in_stray_characters(tmp_path: Path) -> None:
    path = tmp_path / "annotations.txt"
    path.write_text("a.jpg:VISIBLE, 30.5l, 4e1x, .5, -2.250000 ?, PROHIBITORY, 50_SIGN;\n")
    [(image, [sign])] = read_annotations(path)
    assert (image, sign.name, sign.box) == ("a.jpg", "50_SIGN", (0.5, -2.25, 30.5, 40))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no colon here", "expected IMAGE.jpg:SIGN"),
        (":VISIBLE", "expected IMAGE.jpg:SIGN"),
        ("a.jpg:VISIBLE, 1, 2, 3, 4, PROHIBITORY;", "7 fields, got 6"),
        ("a.jpg:HIDDEN, 1, 2, 3, 4, PROHIBITORY, 50_SIGN;", "visibility 'HIDDEN'"),
        ("a.jpg:VISIBLE, 1, 2, x3, 4, PROHIBITORY, 50_SIGN;", "'x3' is not a coordinate"),
        ("a.jpg:VISIBLE, 1e999, 2, 3, 4, PROHIBITORY, 50_SIGN;", "'1e999' is not a coordinate"),
        (f"a.jpg:{'x' * 5000}", "7 fields, got 1 .{,200}: delete"),
    ],
)
def test_a_malformed_line_is_reported(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "Set1" / "annotations.txt"
    path.parent.mkdir()
    path.write_text(f"fine.jpg:\n\n{line}\n")
    with pytest.raises(DataError) as caught:
        read_annotations(path)
    assert caught.match(rf"annotations\.txt, line 3: .*{words}.*ips data traffic-signs {tmp_path}")
    assert "\n" not in str(caught.value)


def test_unusable_annotations_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "annotations.txt"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"annotations\.txt cannot be read"):
        read_annotations(path)
    path.write_text("a.jpg:VISIBLE, 1, 2, 3, 4, OTHER, OTHER;\n")
    with pytest.raises(DataError, match=r"annotations\.txt lists no image"):
        read_photos(tmp_path)
