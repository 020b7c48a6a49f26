"""Write all files that show one explanation: pictures, CSV, GeoJSON and TIFF."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from ips.annotations import write_geojson
from ips.errors import ConfigError
from ips.explain.explanation import Explanation
from ips.explain.figures.attention import draw_attention
from ips.explain.figures.closeup import closeup_page
from ips.explain.figures.overlay import overlay_page
from ips.explain.figures.top_patches import draw_top_patches
from ips.explain.geojson import patch_features
from ips.explain.map_coordinates import MapCoordinates
from ips.explain.map_tiff import write_map_tiff
from ips.explain.maps import image_area
from ips.files import atomic_path, split_address
from ips.patches import has_pixels

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
    on_map: MapCoordinates | None = None,
    progress: Callable[[], None] | None = None,
) -> list[Path]:
    """Write the files of one explanation and return their paths; see `omissions`.

    Args:
        folder: existing folder to write into.
        stem: beginning of every file name; `ENDINGS` has the rest.
        top: number of patches in the gallery.
        task: task whose attention the TIFF shows; the mean over tasks by default.
        all_patches: write every patch to the GeoJSON, not only the selected patches.
        crop, on_map: see `patch_features`.
        progress: callback that is called after each file.
    """
    source = explanation.source
    table, overlay, closeup, gallery, classes, geojson, tiff = (
        folder / f"{stem}{end}" for end in ENDINGS
    )
    written: list[Path] = []

    def add(path: Path) -> None:
        written.append(path)
        if progress is not None:
            progress()

    write_patches(table, explanation)
    add(table)
    overlay_page(explanation).save(overlay)
    add(overlay)
    if (page := closeup_page(explanation)) is not None:
        page.save(closeup)
        add(closeup)
    if has_pixels(source):
        draw_top_patches(gallery, explanation, top=top)
        add(gallery)
    if explanation.patch_probabilities is not None:
        draw_attention(classes, [explanation])
        add(classes)
    if source.extent is not None:
        features = patch_features(explanation, all_patches=all_patches, crop=crop, on_map=on_map)
        write_geojson(geojson, features, crs=None if on_map is None else on_map.crs)
        add(geojson)
        area, mpp = image_area(source, crop=crop), source.parts[0].mpp
        write_map_tiff(tiff, explanation.map(task), area=area, mpp=mpp, task=task)
        add(tiff)
    return written


def write_patches(path: Path, explanation: Explanation) -> None:
    """Write a CSV with a line per patch, in the order of the source, atomically.

    Columns: ``index``; ``x``, ``y`` and ``extent`` in full-resolution pixels of the whole image;
    ``attention``, the mean over tasks, and ``attention_TASK``; ``selected``, 1 for a selected
    patch; ``probability_CLASS`` of the selected patches, if the model has a patch-level head.
    """
    source, attention = explanation.source, explanation.all_attention
    scores, classes = explanation.patch_scores, explanation.patch_classes or ()
    header = [
        *("index", "x", "y", "extent", "attention"),
        *(f"attention_{task}" for task in attention),
        "selected",
        *(f"probability_{name}" for name in classes),
    ]
    rank = {index: k for k, index in enumerate(explanation.indices.tolist())}
    columns = [explanation.mean_attention, *attention.values()]
    extent = "" if source.extent is None else source.extent
    with atomic_path(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for index, (x, y) in enumerate(source.coords.tolist()):
            k = rank.get(index)
            probabilities = [""] * len(classes)
            if k is not None and scores is not None:
                probabilities = [f"{p:.6g}" for p in scores[k].tolist()]
            values = [f"{float(column[index]):.9g}" for column in columns]
            writer.writerow([index, x, y, extent, *values, int(k is not None), *probabilities])


def omissions(explanation: Explanation, *, crop: bool = True) -> list[str]:
    """What `write_explanation` cannot write for this source, one sentence each."""
    source, name = explanation.source, explanation.name
    unseen = len(source.shape) != 3 and source.parts[0].picture is None
    sentences = []
    if unseen:
        sentences.append(
            f"{name}: holds features, and its slide was not found: attention is drawn on a canvas "
            "with the outline of its patches, and there is no gallery: give the folder of the "
            "slides as --slides"
        )
    if source.extent is None:
        sentences.append(
            f"{name}: the patch size is unknown: there is no GeoJSON and no TIFF: give --patch-size"
        )
    elif unseen and crop:
        sentences.append(
            f"{name}: the scanned area of the slide is unknown: GeoJSON and TIFF count pixels from "
            "the corner of the whole slide, QuPath may count them from the corner of the scan"
        )
    return sentences


def output_stems(
    images: Sequence[str], *, folder: Path, endings: Sequence[str] = ENDINGS, base: str = ""
) -> list[str]:
    """A unique file stem per image, for files in ``folder`` that do not replace any of the images.

    Args:
        images: paths of the images, or ``FILE::KEY`` addresses of feature bags.
        folder: folder that the files will be written into.
        endings: endings of the files of one image.
        base: text to append to every stem.
    """
    inputs = {split_address(image)[0].resolve() for image in images}
    stems: list[str] = []
    for image in images:
        first = _stem(image) + base
        stem, count = first, 1
        while stem in stems:
            count += 1
            stem = f"{first}-{count}"
        for target in (folder / f"{stem}{ending}" for ending in endings):
            if target.resolve() in inputs:
                raise ConfigError(
                    f"{folder}: the output for {image} would replace {target}, which is one of "
                    "the images: choose another folder"
                )
        stems.append(stem)
    return stems


def _stem(image: str) -> str:
    name = image.replace("::", "-") if "::" in image else Path(image).stem
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in Path(name).name)
