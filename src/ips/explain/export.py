"""Write all files that show one explanation: pictures, CSV, GeoJSON and TIFF."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ips.annotations import write_geojson
from ips.errors import ConfigError, listed
from ips.explain.explanation import Explanation
from ips.explain.figures.attention import draw_attention
from ips.explain.figures.closeup import closeup_page
from ips.explain.figures.overlay import overlay_page
from ips.explain.figures.top_patches import draw_top_patches
from ips.explain.geojson import patch_features
from ips.explain.map_coordinates import MapCoordinates
from ips.explain.map_tiff import write_map_tiff
from ips.explain.maps import all_values, image_area
from ips.files import atomic_path, split_address
from ips.patches import Part, has_pixels

#: Endings of the files that `write_explanation` may write.
ENDINGS = (
    *("-patches.csv", "-overlay.png", "-closeup.png", "-gallery.png", "-classes.png"),
    *(".geojson", "-map.tif"),
)


def write_explanation(
    folder: Path,
    explanation: Explanation,
    *,
    stem: str,
    top: int = 24,
    task: str | None = None,
    all_patches: bool = False,
    crop: bool = True,
    on_map: Sequence[MapCoordinates] | None = None,
    progress: Callable[[], None] | None = None,
) -> list[Path]:
    """Write the files of one explanation and return their paths; see `omissions`.

    A bag of several images or magnifications has a GeoJSON and a TIFF for each, see `part_stems`.

    Args:
        folder: existing folder to write into.
        stem: beginning of every file name; `ENDINGS` has the rest.
        top: number of patches in the gallery.
        task: task whose attention the TIFF shows; the mean over tasks by default.
        all_patches: write every patch to the GeoJSON, not only the selected patches.
        crop: see `patch_features`.
        on_map: map coordinates of each image, to give GeoJSON in these.
        progress: callback that is called after each file.
    """
    source = explanation.source
    table, overlay, closeup, gallery, classes = (folder / f"{stem}{end}" for end in ENDINGS[:-2])
    written: list[Path] = []

    def add(path: Path) -> None:
        written.append(path)
        if progress is not None:
            progress()

    write_patches(table, explanation)
    add(table)
    overlay_page(explanation).save(overlay)
    add(overlay)
    most = max(explanation.by_part(), key=lambda part: float(part.attention.sum()))
    if (page := closeup_page(most)) is not None:
        page.save(closeup)
        add(closeup)
    if has_pixels(source):
        draw_top_patches(gallery, explanation, top=top)
        add(gallery)
    if explanation.patch_probabilities is not None:
        draw_attention(classes, [explanation])
        add(classes)
    parts = source.parts
    explained = explanation.by_part()
    maps = {i: each.map(task) for i, each in enumerate(explained) if each.extent is not None}
    among = all_values(list(maps.values())) if len(maps) > 1 else None
    for number, start in enumerate(part_stems(stem, parts)):
        if number not in maps:
            continue
        geojson, tiff = (folder / f"{start}{end}" for end in ENDINGS[-2:])
        part, each = parts[number], explained[number]
        place = None if on_map is None else on_map[part.image]
        features = patch_features(each, all_patches=all_patches, crop=crop, on_map=place)
        write_geojson(geojson, features, crs=None if place is None else place.crs)
        add(geojson)
        area = image_area(each.source, crop=crop)
        write_map_tiff(tiff, maps[number], area=area, mpp=part.mpp, task=task, among=among)
        add(tiff)
    return written


def part_stems(stem: str, parts: Sequence[Part]) -> list[str]:
    """Beginnings of the names of the files of each part: ``stem`` itself if there is one part."""
    if len(parts) == 1:
        return [stem]
    stems: list[str] = []
    for part in parts:
        name = _stem(part.name)
        first = stem if name == stem else f"{stem}--{name}"
        if part.magnification is not None:
            first += f"--{part.magnification:g}x"
        stems.append(_unique(first, stems))
    return stems


def write_patches(path: Path, explanation: Explanation) -> None:
    """Write a CSV with a line per patch, in the order of the source, atomically.

    Columns: ``index``; of a bag of several images or magnifications ``image``, ``magnification``
    and ``patch``, the number of the patch in its GeoJSON; ``x``, ``y`` and ``extent`` in
    full-resolution pixels of the whole image; ``attention``, the mean over tasks, and
    ``attention_TASK``; ``scored`` if a screen left out patches, 0 for these; ``selected``, 1 for a
    selected patch; ``probability_CLASS`` of the selected patches, if the model has a patch-level
    head.
    """
    source, attention = explanation.source, explanation.all_attention
    scores, classes = explanation.patch_scores, explanation.patch_classes or ()
    parts = source.parts
    several, seen = len(parts) > 1, explanation.seen
    header = [
        "index",
        *(("image", "magnification", "patch") if several else ()),
        *("x", "y", "extent", "attention"),
        *(f"attention_{task}" for task in attention),
        *(() if seen is None else ("scored",)),
        "selected",
        *(f"probability_{name}" for name in classes),
    ]
    rank = {index: k for k, index in enumerate(explanation.indices.tolist())}
    columns = [explanation.mean_attention, *attention.values()]
    part_of = np.repeat(np.arange(len(parts)), [p.patches.stop - p.patches.start for p in parts])
    with atomic_path(path) as target, target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for index, (x, y) in enumerate(source.coords.tolist()):
            k, part = rank.get(index), parts[part_of[index]]
            extent = "" if part.extent is None else part.extent
            place = [part.name, part.magnification or "", index - part.patches.start]
            probabilities = [""] * len(classes)
            if k is not None and scores is not None:
                probabilities = [f"{p:.6g}" for p in scores[k].tolist()]
            values = [f"{float(column[index]):.9g}" for column in columns]
            row = [index, *(place if several else []), x, y, extent, *values]
            scored = [] if seen is None else [int(seen[index])]
            writer.writerow([*row, *scored, int(k is not None), *probabilities])


def omissions(explanation: Explanation, *, crop: bool = True) -> list[str]:
    """What `write_explanation` cannot write for this source, one sentence each."""
    source, name = explanation.source, explanation.name
    unseen = len(source.shape) != 3 and any(part.picture is None for part in source.parts)
    sentences = []
    if unseen:
        sentences.append(
            f"{name}: holds features, and its slide was not found: attention is drawn on a canvas "
            "with the outline of its patches, and there is no gallery: give the folder of the "
            "slides as --slides"
        )
    unknown = [part.title for part in source.parts if part.extent is None]
    if unknown:
        sentences.append(
            f"{listed(unknown)}: the patch size is unknown: there is no GeoJSON and no TIFF: give "
            "--patch-size"
        )
    elif unseen and crop:
        sentences.append(
            f"{name}: the scanned area of the slide is unknown: GeoJSON and TIFF count pixels from "
            "the corner of the whole slide, QuPath may count them from the corner of the scan"
        )
    return sentences


def output_stems(
    images: Sequence[str],
    *,
    folder: Path,
    endings: Sequence[str] = ENDINGS,
    base: str = "",
    inputs: Sequence[str] | None = None,
) -> list[str]:
    """A unique file stem per image, for files in ``folder`` that do not replace any of the images.

    Args:
        images: paths of the images, ``FILE::KEY`` addresses of feature bags, or names of groups.
        folder: folder that the files will be written into.
        endings: endings of the files of one image.
        base: text to append to every stem.
        inputs: files of the images, by default ``images``.
    """
    files = images if inputs is None else inputs
    taken = {split_address(file)[0].resolve() for file in files}
    stems: list[str] = []
    for image in images:
        stem = _unique(_stem(image) + base, stems)
        for target in (folder / f"{stem}{ending}" for ending in endings):
            if target.resolve() in taken:
                raise ConfigError(
                    f"{folder}: the output for {image} would replace {target}, which is one of "
                    "the images: choose another folder"
                )
        stems.append(stem)
    return stems


def _unique(first: str, taken: Sequence[str]) -> str:
    stem, count = first, 1
    while stem in taken:
        count += 1
        stem = f"{first}-{count}"
    return stem


def _stem(image: str) -> str:
    name = image.replace("::", "-") if "::" in image else Path(image).stem
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in Path(name).name)
