"""Text that people and other programs write: labels, configs, annotations."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image as PILImage

from fuzz.family import Family, Reading, Seed
from fuzz.images import PATCH, picture
from fuzz.text import edit_text, edit_yaml
from ips.annotations import read_outlines
from ips.config import TaskConfig
from ips.config_io import parse_config
from ips.data.camelyon16 import read_reference
from ips.data.labels import encode_labels
from ips.data.objects import Boxes
from ips.data.regions import coverage, patches_on, read_tumour_regions
from ips.data.synthetic.tissue_slides import load_clusters
from ips.data.table import read_table
from ips.data.traffic_sign_annotations import read_photos
from ips.images import open_image
from ips.pretraining.patches import find_files
from ips.recipes import read_recipe
from ips.training import build_data, build_model, resolve
from ips.viewer.images import annotation_shapes

TEXT = "a changed word or number of a text is another valid text"
_CSV = "path,grade,marks,split\na.png,high,1|2,train\nb.png,low,,val\nc.png,low,0,test\n"
_TASKS = {
    "grade": TaskConfig(kind="multiclass", classes=2),
    "marks": TaskConfig(kind="multilabel", classes=3),
}
CONFIG: dict[str, Any] = {
    "method": "ips",
    "data": {"kind": "table", "csv": "labels.csv"},
    "patches": {"size": PATCH, "stride": PATCH, "edge": "drop"},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 4, "norm": True},
    "select": {"keep": 4, "chunk": 4, "mode": "iterative"},
    "aggregate": {"heads": 2, "inner": 8, "position": True},
    "train": {"epochs": 2, "batch": 2, "warmup": 0, "lr": 0.001, "seed": 3},
    "tasks": {"grade": {"kind": "multiclass", "classes": 2, "names": ["high", "low"]}},
}
_RECIPE: dict[str, Any] = {
    "scales": {
        "laptop": {**CONFIG, "methods": {"dps": {"select": {"keep": 2}}, "rps": {}}},
        "paper": {**CONFIG, "method": "rps"},
    }
}
_ASAP = """<?xml version="1.0"?>
<ASAP_Annotations>
 <Annotations>
  <Annotation Name="A 0" Type="Polygon" PartOfGroup="Tumor" Color="#F4FA58">
   <Coordinates>
    <Coordinate Order="0" X="1.5" Y="2" /><Coordinate Order="1" X="40" Y="2" />
    <Coordinate Order="2" X="40" Y="50.25" /><Coordinate Order="3" X="2" Y="51" />
   </Coordinates>
  </Annotation>
  <Annotation Name="A 1" Type="Dot" PartOfGroup="Exclusion" Color="#F4FA58">
   <Coordinates><Coordinate Order="0" X="7" Y="8" /></Coordinates>
  </Annotation>
 </Annotations>
 <AnnotationGroups><Group Name="Tumor" PartOfGroup="None" Color="#00ff00" /></AnnotationGroups>
</ASAP_Annotations>
"""
_RING = [[1, 2], [30, 2.5], [30, 40], [1, 40], [1, 2]]
_GEOJSON: dict[str, Any] = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [_RING]},
            "properties": {
                "objectType": "annotation",
                "name": "one",
                "classification": {"name": "Tumor", "color": [200, 0, 0]},
            },
        },
        {
            "type": "Feature",
            "geometry": {"type": "MultiPoint", "coordinates": [[5, 6], [7, 8, 0]]},
            "properties": {"classification": {"name": "Marks", "colorRGB": -3140401}},
        },
        {
            "geometry": {
                "type": "GeometryCollection",
                "geometries": [{"type": "LineString", "coordinates": [[0, 0], [3, 4]]}],
            }
        },
    ],
}
_BOXES = "path,left,top,right,bottom,grade\na.png,1,2,30.5,40,high\nb.png,5,5,9,9,\n"
_CLUSTERS = {
    "type": "FeatureCollection",
    "features": [{"type": "Feature", "properties": {"nuclei": [[1.0, 2.0, 3.0], [4, 5, 6]]}}],
}
_SIGNS = """1.jpg:VISIBLE, 50.0, 40.5, 20, 10, PROHIBITORY, 50_SIGN;
2.jpg:
3.jpg:MISC_SIGNS;BLURRED, 9, 8, 7, 6, PROHIBITORY, 70_SIGN;VISIBLE, 5e1, 40, 2, 1, OTHER, STOP;
4.jpg:VISIBLE, 60, 60, 30, 30, PROHIBITORY, 80_SIGN;
"""
_REFERENCE = {
    "plain": "test_001,Tumor,IDC,Macro\ntest_002,Normal,None,None\n",
    "header": "image,type,center,class\ntest_001.tif,tumor,0,macro\ntest_002.tif,normal,1,none\n",
}


def images(*names: str) -> dict[str, bytes]:
    """Small pictures with these names."""
    out = io.BytesIO()
    PILImage.fromarray(picture()).save(out, "png")
    return dict.fromkeys(names, out.getvalue())


def _read_labels(path: Path) -> Reading:
    rows = read_table(path, tasks=list(_TASKS))
    encoded = encode_labels(rows, _TASKS, source=path)
    labels = [{k: v.tolist() for k, v in row.items()} for row in encoded.labels]
    files = [path.name for path in find_files([path])]  # as `ips pretrain` reads the table
    names = [(row.path.name, row.split) for row in rows]
    return Reading((len(rows), encoded.names), (labels, names, files))


def _read_config(path: Path) -> Reading:
    """Read a config, and build the data and the model that `ips train` would train."""
    config = parse_config(read_recipe(str(path)), source=str(path))
    here = config.data.model_copy(update={"csv": path.parent / "labels.csv", "root": None})
    if config.data.kind != "table":  # other data are drawn or must be downloaded
        return Reading(config.data.kind, config)
    data = build_data(config.model_copy(update={"data": here}))
    source, _ = data.train[0]
    resolved = resolve(config, data)
    net = build_model(resolved)
    shapes = [tuple(parameter.shape) for parameter in net.parameters()]
    return Reading((len(source), source.shape), (config.model_dump(mode="json"), shapes))


def _read_recipe(path: Path) -> Reading:
    scales = [
        parse_config(read_recipe(str(path), scale=scale, settings=settings), source=str(path))
        for scale, settings in ((None, []), ("paper", []), (None, ["method=dps"]))
    ]
    return Reading(len(scales), [scale.model_dump(mode="json") for scale in scales])


def _read_regions(path: Path) -> Reading:
    """Read ASAP's XML as CAMELYON16 is read."""
    regions = read_tumour_regions(path)
    share = coverage(regions, np.array([[0, 0], [10, 20]]), extent=PATCH)
    shapes = [[part.tolist() for part in (region.polygon, *region.holes)] for region in regions]
    return Reading((len(regions), len(read_outlines(path))), (shapes, share.tolist()))


def _read_outlines(path: Path) -> Reading:
    """Read annotations as the viewer does."""
    with open_image(path.parent / "slide.png") as image:
        shapes = annotation_shapes(path, image)
    json.dumps(shapes, allow_nan=False)  # as the page receives them
    return Reading(len(shapes), shapes)


def _read_boxes(path: Path) -> Reading:
    """Read the objects of a table, and find the patches that are on them."""
    images = [path.parent / name for name in ("a.png", "b.png")]
    boxes = Boxes(path, images=images, root=path.parent, path="path", tasks=list(_TASKS))
    if boxes.errors:
        raise boxes.errors[0]
    found = [boxes.regions(image, task) or [] for image in images for task in _TASKS]
    corners = [[region.polygon.tolist() for region in regions] for regions in found]
    grid = np.array([[0, 0], [PATCH, 0]])
    on = [[patches_on(r, grid, extent=PATCH).tolist() for r in regions] for regions in found]
    return Reading(len(corners[0]), (corners, on))


def _read_clusters(path: Path) -> Reading:
    clusters = load_clusters(path)
    return Reading(len(clusters), [cluster.nuclei.tolist() for cluster in clusters])


def _read_signs(path: Path) -> Reading:
    photos = read_photos(path.parent)
    return Reading(len(photos), [(photo.path.name, photo.label, photo.boxes) for photo in photos])


def _read_reference(path: Path) -> Reading:
    labels = read_reference(path)
    return Reading(len(labels), labels)


def _yaml(values: Mapping[str, Any]) -> bytes:
    return yaml.safe_dump(dict(values), sort_keys=False).encode()


def families() -> list[Family]:
    """All families of text."""
    pictures = images("a.png", "b.png", "c.png")
    table = {"labels.csv": _CSV.encode(), **pictures}
    csv = {
        "comma": _CSV,
        "semicolon": _CSV.replace("|", " ").replace(",", ";"),
        "bom": f"\ufeff{_CSV}",
    }
    return [
        Family(
            "labels",
            tuple(
                Seed(name, "labels.csv", text.encode(), _read_labels, pictures)
                for name, text in csv.items()
            ),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "config",
            (
                Seed(
                    "table", "my.yaml", _yaml(CONFIG), _read_config, table, (*CONFIG, "labels.csv")
                ),
            ),
            *(edit_yaml, TEXT, TEXT),
        ),
        Family(
            "recipe",
            (Seed("scales", "my.yaml", _yaml(_RECIPE), _read_recipe),),
            *(edit_yaml, TEXT, TEXT),
        ),
        Family(
            "asap-xml",
            (Seed("regions", "slide.xml", _ASAP.encode(), _read_regions),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "geojson",
            (
                Seed(
                    *("qupath", "slide.geojson", json.dumps(_GEOJSON, indent=1).encode()),
                    *(_read_outlines, images("slide.png")),
                ),
                Seed(
                    *("asap", "slide.xml", _ASAP.encode(), _read_outlines, images("slide.png")),
                ),
            ),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "boxes",
            (Seed("objects", "boxes.csv", _BOXES.encode(), _read_boxes),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "clusters",
            (Seed("truth", "truth.geojson", json.dumps(_CLUSTERS).encode(), _read_clusters),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "sign-annotations",
            (Seed("signs", "Set1/annotations.txt", _SIGNS.encode(), _read_signs),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "camelyon16-reference",
            tuple(
                Seed(name, "reference.csv", text.encode(), _read_reference)
                for name, text in _REFERENCE.items()
            ),
            *(edit_text, TEXT, TEXT),
        ),
    ]
