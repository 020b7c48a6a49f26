"""Tumour regions of ASAP files, and points inside them against a naive count of crossings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ips.data.regions import Region, coverage, inside, read_tumour_regions
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
    ("group", "tumour"),
    [("_0", 1), ("_1", 1), ("Tumor", 1), ("_2", 0), ("Exclusion", 0), ("None", 0)],
)
def test_groups_mark_tumour_or_exclude_it(tmp_path: Path, group: str, tumour: int) -> None:
    path = write(tmp_path / "a.xml", annotation(group, SQUARE, [0, 1, 2, 3]))
    (region,) = read_tumour_regions(path)
    assert (region.group, region.tumour) == (group, bool(tumour))


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
    """Stars that overlap each other, some of them holes."""
    random = np.random.default_rng(seed)
    regions = []
    for tumour in (True, True, True, False, False):
        turn = np.sort(random.uniform(0, 2 * np.pi, 25))
        radius = random.uniform(10, 60, 25)
        ray = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        polygon = random.uniform(30, 170, 2) + radius[:, None] * ray
        regions.append(Region(polygon, "Tumor" if tumour else "Exclusion", tumour))
    return regions


@pytest.mark.parametrize("seed", range(3))
def test_points_inside_match_the_naive_count(seed: int) -> None:
    regions = drawn(seed)
    points = np.random.default_rng(seed).uniform(-10, 210, (400, 2))
    points[200:, 1] = np.rint(points[200:, 1] / 20) * 20  # many of one height
    expected = [
        any(within(r.polygon, x, y) for r in regions if r.tumour)
        and not any(within(r.polygon, x, y) for r in regions if not r.tumour)
        for x, y in points
    ]
    assert 20 < sum(expected) < 300
    np.testing.assert_array_equal(inside(regions, points), expected)


def test_points_on_corners_count_for_one_of_two_neighbours() -> None:
    left = Region(np.array([(0.0, 0), (10, 0), (10, 10), (0, 10)]), "_0", True)
    right = Region(left.polygon + np.array([10, 0]), "_0", True)
    border = np.array([(10.0, 0), (10, 5), (10, 3)])
    assert (inside([left], border) != inside([right], border)).all()


def test_no_regions_or_no_points() -> None:
    assert inside([], np.zeros((3, 2))).tolist() == [False] * 3
    assert inside(drawn(0), np.zeros((0, 2))).shape == (0,)
    assert coverage([], np.zeros((3, 2)), extent=5).tolist() == [0, 0, 0]
    assert coverage(drawn(0), np.zeros((0, 2)), extent=5).shape == (0,)


def test_coverage_subtracts_exclusions() -> None:
    tumour = Region(np.array([(16.0, 0), (64, 0), (64, 32), (16, 32)]), "_0", True)
    hole = Region(np.array([(32.0, 0), (48, 0), (48, 32), (32, 32)]), "_2", False)
    coords = [(0, 0), (32, 0), (64, 0), (16, 16), (32, 8)]
    share = coverage([tumour, hole], coords, extent=32)
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
