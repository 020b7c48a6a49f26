"""The geometry of boxes and labels on a thumbnail."""

from __future__ import annotations

import numpy as np

from ips.explain.marks import boxes, label_spots
from ips.patches import Thumbnail
from tests.patches.test_thumbnail import averaged, scene


def test_boxes_are_where_the_patches_are() -> None:
    view = Thumbnail(np.zeros((50, 50, 3), np.uint8), scale=0.5, offset=(100, 200))
    found = boxes(view, np.array([[100, 200], [140, 260]]), extent=20)
    assert found.tolist() == [[0, 0, 10, 10], [20, 30, 10, 10]]


def test_small_boxes_are_enlarged_around_their_centre() -> None:
    view = Thumbnail(np.zeros((50, 50, 3), np.uint8), scale=0.1, offset=(0, 0))
    found = boxes(view, np.array([[90, 190]]), extent=20, smallest=6)
    assert found.tolist() == [[7, 17, 6, 6]]


def test_boxes_enclose_the_patch_on_the_thumbnail() -> None:
    source = scene()
    view = source.parts[0].thumbnail(120)
    number = int(source.read(range(len(source))).float().mean(dim=(1, 2, 3)).argmax())
    corner = source.coords[number : number + 1]
    left, top, width, height = boxes(view, corner, extent=source.extent)[0].astype(int).tolist()
    cut = view.pixels[top : top + height, left : left + width, :1]
    patch = source.read([number])[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(cut, averaged(patch, 2), atol=1)


def test_numbers_do_not_overlap_and_stay_inside() -> None:
    marks = np.array([[10.0 * x, 10.0 * y, 10, 10] for y in range(2) for x in range(3)])
    spots = label_spots(marks, size=(6, 6), area=(100, 100))
    apart = np.abs(spots[:, None] - spots[None]).max(axis=2)
    assert (apart[~np.eye(len(spots), dtype=bool)] >= 6).all()
    assert (spots >= 3).all()
    assert (spots <= 97).all()
