"""Regions: points inside them against a naive count of crossings, and patches on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ips.data.regions import (
    Region,
    coverage,
    inside,
    patches_on,
    read_outlined_regions,
    read_tumour_regions,
)
from ips.errors import DataError

Points = npt.NDArray[np.float64]


def annotation(group: str, corners: list[tuple[float, float]], order: list[int]) -> str:
    lines = "".join(
        f'<Coordinate Order="{n}" X="{corners[n][0]}" Y="{corners[n][1]}"/>' for n in order
    )
    return (
        f'<Annotation Name="A" Type="Polygon" PartOfGroup="{group}" Color="#F4FA58">'
        f"<Coordinates>{lines}</Coordinates></Annotation>"
    )


def write(path: Path, *annotations: str) -> Path:
    path.write_text(
        '<?xml version="1.0"?><ASAP_Annotations><Annotations>'
        + "".join(annotations)
        + "</Annotations><AnnotationGroups/></ASAP_Annotations>"
    )
    return path


SQUARE = [(0.0, 0.0), (100.5, 0.0), (100.5, 100.0), (0.0, 100.0)]


def test_corners_are_sorted_by_their_order(tmp_path: Path) -> None:
    corners = [(float(n), float(n * n)) for n in range(12)]
    shuffled = [10, 2, 11, 0, 1, 3, 9, 8, 7, 4, 6, 5]  # as numbers, not as words
    (region,) = read_tumour_regions(
        write(tmp_path / "a.xml", annotation("Tumor", corners, shuffled))
    )
    np.testing.assert_array_equal(region.polygon, corners)


@pytest.mark.parametrize(
    ("group", "tumours"),
    [("_0", 2), ("_1", 2), ("Tumor", 2), ("_2", 1), ("Exclusion", 1), ("None", 1)],
)
def test_groups_mark_tumour_or_exclude_it(tmp_path: Path, group: str, tumours: int) -> None:
    small = [(x / 2, y / 2) for x, y in SQUARE]
    path = write(
        tmp_path / "a.xml",
        annotation("_0", SQUARE, [0, 1, 2, 3]),
        annotation(group, small, [0, 1, 2, 3]),
    )
    regions = read_tumour_regions(path)
    assert len(regions) == tumours
    assert len(regions[0].holes) == 2 - tumours
    assert inside(regions, [(30, 30), (70, 70)]).tolist() == [tumours == 2, True]


def test_an_exclusion_belongs_to_the_tumours_it_may_touch(tmp_path: Path) -> None:
    far = [(x + 500, y) for x, y in SQUARE]
    corners = [0, 1, 2, 3]
    drawn = (("_0", SQUARE), ("_2", SQUARE), ("_0", far))
    path = write(tmp_path / "a.xml", *(annotation(group, line, corners) for group, line in drawn))
    assert [len(region.holes) for region in read_tumour_regions(path)] == [1, 0]


def test_a_dot_has_no_area(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xml", annotation("_0", SQUARE, [0]), annotation("_0", SQUARE, []))
    assert read_tumour_regions(path) == []


def test_mistakes_in_the_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.xml: .*group 'stroma'"):
        read_tumour_regions(write(tmp_path / "a.xml", annotation("stroma", SQUARE, [0, 1, 2])))
    path = write(tmp_path / "b.xml", annotation("_0", SQUARE, [0, 1, 2]).replace('X="0.0"', ""))
    with pytest.raises(DataError, match=r"b\.xml: .*a Coordinate of annotation 'A' lacks"):
        read_tumour_regions(path)
    (tmp_path / "c.xml").write_text(path.read_text()[:100])
    with pytest.raises(DataError, match=r"c\.xml: cannot read these annotations \(unclosed token"):
        read_tumour_regions(tmp_path / "c.xml")
    with pytest.raises(DataError, match=r"d\.xml: cannot read these annotations \(no such file"):
        read_tumour_regions(tmp_path / "d.xml")


def within(polygon: Points, x: float, y: float) -> bool:
    """An odd number of edges to the left."""
    odd = False
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if (y0 <= y) != (y1 <= y) and x0 + (y - y0) / (y1 - y0) * (x1 - x0) < x:
            odd = not odd
    return odd


def drawn(seed: int) -> list[Region]:
    """Three stars with two holes, which overlap each other."""
    random = np.random.default_rng(seed)
    stars = []
    for _ in range(5):
        turn = np.sort(random.uniform(0, 2 * np.pi, 25))
        radius = random.uniform(10, 60, 25)
        ray = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        polygon = random.uniform(30, 170, 2) + radius[:, None] * ray
        stars.append(polygon)
    return [Region(star, tuple(stars[3:])) for star in stars[:3]]


@pytest.mark.parametrize("seed", range(3))
def test_points_inside_match_the_naive_count(seed: int) -> None:
    regions = drawn(seed)
    points = np.random.default_rng(seed).uniform(-10, 210, (400, 2))
    points[200:, 1] = np.rint(points[200:, 1] / 20) * 20  # many of one height
    expected = [
        any(within(r.polygon, x, y) for r in regions)
        and not any(within(hole, x, y) for hole in regions[0].holes)
        for x, y in points
    ]
    assert 20 < sum(expected) < 300
    np.testing.assert_array_equal(inside(regions, points), expected)


def test_points_on_corners_count_for_one_of_two_neighbours() -> None:
    left = Region(np.array([(0.0, 0), (10, 0), (10, 10), (0, 10)]))
    right = Region(left.polygon + np.array([10, 0]))
    border = np.array([(10.0, 0), (10, 5), (10, 3)])
    assert (inside([left], border) != inside([right], border)).all()


def test_no_regions_or_no_points() -> None:
    assert inside([], np.zeros((3, 2))).tolist() == [False] * 3
    assert inside(drawn(0), np.zeros((0, 2))).shape == (0,)
    assert coverage([], np.zeros((3, 2)), extent=5).tolist() == [0, 0, 0]
    assert coverage(drawn(0), np.zeros((0, 2)), extent=5).shape == (0,)


def test_coverage_subtracts_holes() -> None:
    hole = Region.box(32, 0, 48, 32).polygon
    tumour = Region(Region.box(16, 0, 64, 32).polygon, (hole,))
    coords = [(0, 0), (32, 0), (64, 0), (16, 16), (32, 8)]
    share = coverage([tumour], coords, extent=32)
    np.testing.assert_allclose(share, [0.5, 0.5, 0, 0.25, 0.375])


def test_coverage_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    regions = drawn(1)
    coords = np.stack(np.meshgrid(np.arange(0, 200, 8), np.arange(0, 200, 8)), -1).reshape(-1, 2)
    whole = coverage(regions, coords, extent=8)
    assert 0 < whole.mean() < 1
    monkeypatch.setattr("ips.data.regions._POINTS", 1000)
    np.testing.assert_array_equal(coverage(regions, coords, extent=8), whole)
    # the mean over patches that tile the plane is the area of what is inside
    random = np.random.default_rng(0).uniform(0, 200, (20_000, 2))
    assert whole.mean() == pytest.approx(inside(regions, random).mean(), abs=0.02)


GRID = np.stack(np.meshgrid(np.arange(0, 100, 10), np.arange(0, 100, 10)), -1).reshape(-1, 2)


def on(region: Region, extent: float = 10) -> list[list[int]]:
    """Corners of the patches of a grid that are on a region."""
    found: list[list[int]] = GRID[patches_on(region, GRID, extent=extent)].tolist()
    return found


def test_a_patch_with_the_centre_of_an_object_is_on_it() -> None:
    assert on(Region.box(12, 33, 16, 36)) == [[10, 30]]
    # Across four patches, none of which covers half of it.
    assert on(Region.box(6, 6, 13, 13)) == [[0, 0]]


def test_a_patch_that_covers_half_of_an_object_is_on_it() -> None:
    # The centre is on the edge, which belongs to the right patch.
    assert on(Region.box(6, 2, 14, 8)) == [[0, 0], [10, 0]]
    assert on(Region.box(6, 2, 15, 8)) == [[10, 0]]


def test_a_patch_that_an_object_covers_by_half_is_on_it() -> None:
    found = on(Region.box(5, 0, 24, 10))
    assert found == [[0, 0], [10, 0]]  # the third patch is covered by four tenths
    assert len(on(Region.box(20, 20, 60, 60))) == 16


def test_patches_on_a_polygon() -> None:
    ring = Region(Region.box(20, 20, 70, 70).polygon, (Region.box(30, 30, 60, 60).polygon,))
    around = [[x, y] for x, y in GRID.tolist() if 20 <= x < 70 and 20 <= y < 70]
    assert on(ring) == [[x, y] for x, y in around if not (30 <= x < 60 and 30 <= y < 60)]
    assert ring.area == pytest.approx(50**2 - 30**2, rel=0.05)
    # A small triangle inside a large patch.
    triangle = Region(np.array([(41.0, 41), (44, 41), (41, 44)]))
    assert on(triangle, extent=10) == [[40, 40]]
    assert triangle.area == pytest.approx(4.5, rel=0.05)
    np.testing.assert_allclose(triangle.centre, (42, 42), atol=0.05)


def test_a_box_agrees_with_a_polygon_of_the_same_shape() -> None:
    box = Region.box(13.5, 27, 61, 44)
    corners = np.insert(box.polygon, 1, (30, 27), axis=0)  # a corner more: no longer a box
    polygon = Region(corners)
    assert box.is_box
    assert not polygon.is_box
    for extent in (10, 30):
        assert on(box, extent) == on(polygon, extent)


def test_polygons_of_a_geojson_file_keep_their_holes(tmp_path: Path) -> None:
    rings = [[[0, 0], [9, 0], [9, 9], [0, 0]], [[3, 1], [8, 1], [8, 6], [3, 1]]]
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": rings}))
    (region,) = read_outlined_regions(tmp_path / "a.geojson", origin=(100, 0))
    assert region.bounds[0].tolist() == [100, 0]
    assert inside([region], [(101, 0.5), (107, 2)]).tolist() == [True, False]
