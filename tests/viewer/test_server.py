"""Responses and refusals of the server."""

from __future__ import annotations

import os
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ips.predictions import PURPOSE
from ips.predictor import Predictor
from tests.viewer.asking import Answered, ask
from tests.viewer.opening import Served, opened, settled
from tests.viewer.viewer_files import NASTY, picture


def pixels(answered: Answered) -> np.ndarray[Any, Any]:
    assert answered.status == 200
    return np.asarray(Image.open(BytesIO(answered.body)).convert("RGBA"))


def test_every_image_is_listed_and_a_damaged_one_gives_the_reason(served: Served) -> None:
    app, rows = served
    assert list(rows) == ["a.png", "b.tif", f"c {NASTY}.png", "d.png"]
    assert [row["state"] for row in rows.values()] == ["ready", "ready", "ready", "failed"]
    assert "damaged" in rows["d.png"]["message"]
    predicted = rows["a.png"]["predictions"]
    assert predicted[0]["names"][0] in (NASTY, "ring", "bar")
    assert 1 / 3 <= predicted[0]["probability"] <= 1
    assert predicted[1]["probability"] is None
    listed = ask(app, "api/images").json
    assert listed["images"] == list(rows.values())
    assert "path" not in listed["images"][0]
    assert ask(app, f"api/images?since={listed['version']}").json["images"] == []


def test_the_details_match_the_prediction(
    served: Served, predictor: Predictor, images: Path
) -> None:
    app, rows = served
    details = ask(app, f"api/images/{rows['b.tif']['id']}/0").json
    prediction = predictor.predict(images / "b.tif")
    assert (details["width"], details["height"], details["zoom"]) == (600, 900, 2)
    assert details["mpp"] == pytest.approx(0.25)
    assert details["annotated"]
    answer = ask(app, f"api/images/{rows['b.tif']['id']}").json
    assert answer["kept"] == prediction.coords.tolist()
    assert answer["count"] == len(prediction.indices)
    (part,) = answer["parts"]
    assert part.pop("shares") == pytest.approx([1, 1, 1])
    assert part == {"image": 0, "extent": 50, "magnification": None}
    assert answer["patches"] == 12 * 18
    assert dict(answer["probabilities"][0]) == pytest.approx(
        predictor.class_probabilities("shape", prediction.probabilities["shape"]), abs=1e-5
    )
    assert np.allclose(answer["attention"][0], prediction.task_attention["shape"], atol=1e-5)
    assert np.allclose(answer["attention"][2], prediction.attention, atol=1e-5)
    assert len(answer["classes"]) == 6
    mean, found = prediction.mean_attention, prediction.spread
    assert np.allclose(answer["ratios"][2], mean[prediction.indices] * found.patches, rtol=1e-4)
    assert answer["spreads"][2] == {"text": str(found), "uniform": found.uniform}
    assert answer["scales"][2][-1] == pytest.approx(found.ratio, rel=1e-4)
    assert answer["scales"][2] == sorted(answer["scales"][2])
    drawn = ask(app, f"api/images/{rows['b.tif']['id']}/0/annotations").json
    assert drawn[0]["lines"][0][0] == [50, 60]
    assert drawn[0]["name"] == "here"
    assert ask(app, f"api/images/{rows['a.png']['id']}/0/annotations").json == []


def test_a_damaged_image_gives_an_error_and_the_others_are_shown(served: Served) -> None:
    app, rows = served
    broken = ask(app, f"api/images/{rows['d.png']['id']}/0").json
    assert "d.png" in broken["error"]
    assert ask(app, f"tiles/{rows['d.png']['id']}/0/0/0/0").status == 422
    assert ask(app, f"tiles/{rows['a.png']['id']}/0/0/0/0").status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode there")
def test_a_name_that_cannot_be_encoded_is_accepted(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    path = tmp_path / os.fsdecode(b"\xff.png")
    path.write_bytes(b"nothing")
    with opened(predictor, run, [path]) as (images, app):
        number = ask(app, "api/images").json["images"][0]["id"]
        assert "known image format" in ask(app, f"api/images/{number}/0").json["error"]
        assert ask(app, f"tiles/{number}/0/0/0/0").status == 422
        images.start()
        assert next(iter(settled(images).values()))["state"] == "failed"


def test_tiles_show_the_image(served: Served) -> None:
    app, rows = served
    tile = ask(app, f"tiles/{rows['a.png']['id']}/0/2/1/1")
    assert tile.headers["content-type"] == "image/png"  # at the edge
    shown = pixels(tile)
    assert np.array_equal(shown[:244, :, 0], picture(700, 500)[256:500, 256:512])
    assert not shown[244:, :, 3].any()
    whole = ask(app, f"tiles/{rows['a.png']['id']}/0/2/0/0")
    assert whole.headers["content-type"] == "image/jpeg"


def test_attention_is_drawn_where_it_is_high(
    served: Served, predictor: Predictor, images: Path
) -> None:
    app, rows = served
    number = rows["a.png"]["id"]
    attention = predictor.predict(images / "a.png").all_attention
    source = predictor.open(images / "a.png")
    for task, name in enumerate(predictor.net.tasks):
        x, y = source.coords[attention[name].argmax()].tolist()
        place = f"2/{(x + 25) // 256}/{(y + 25) // 256}"
        tile = pixels(ask(app, f"attention/{number}/0/{place}?task={task}&min_rank=0.999"))
        assert tile[(y + 25) % 256, (x + 25) % 256, 3] == 255
        assert (tile[..., 3] > 0).sum() <= 50 * 50
    tasks = [pixels(ask(app, f"attention/{number}/0/0/0/0?task={t}")) for t in range(3)]
    assert not np.array_equal(tasks[0], tasks[1])
    assert not np.array_equal(tasks[1], tasks[2])
    magma = pixels(ask(app, f"attention/{number}/0/0/0/0?task=0&colour_map=magma"))
    assert not np.array_equal(tasks[0], magma)


def test_thumbnails_show_the_image(served: Served) -> None:
    app, rows = served
    thumbnail = ask(app, f"thumbnails/{rows['a.png']['id']}/0")
    assert thumbnail.headers["content-type"] == "image/jpeg"
    assert pixels(thumbnail).shape[:2] == (183, 256)
    broken = ask(app, f"thumbnails/{rows['d.png']['id']}/0")
    assert (broken.status, broken.body) == (204, b"")


def test_patches_show_the_image_at_their_position(served: Served) -> None:
    app, rows = served
    answer = ask(app, f"api/images/{rows['a.png']['id']}").json
    padded = np.pad(picture(700, 500), ((0, 50), (0, 50)))
    for rank, (x, y) in enumerate(answer["kept"]):
        shown = pixels(ask(app, f"patches/{rows['a.png']['id']}/{rank}"))
        assert np.array_equal(shown[..., 0], padded[y : y + 50, x : x + 50])
    assert ask(app, f"patches/{rows['a.png']['id']}/6").status == 404


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("api/images/unknown", 404),
        ("api/images/unknown/0", 404),
        ("api/images/unknown/0/annotations", 404),
        ("api/images/{}/1", 404),
        ("api/images/{}/-1", 404),
        ("api/images/{}/x", 400),
        ("api/images/{}/" + "9" * 40, 404),
        ("api/images/{}/1/annotations", 404),
        ("tiles/{}/1/0/0/0", 404),
        ("tiles/{}/-1/0/0/0", 404),
        ("tiles/{}/x/0/0/0", 400),
        ("tiles/{}/0.5/0/0/0", 400),
        ("attention/{}/1/0/0/0?task=0", 404),
        ("attention/{}/-1/0/0/0?task=0", 404),
        ("attention/{}/%00/0/0/0?task=0", 400),
        ("thumbnails/{}/1", 404),
        ("thumbnails/{}/-1", 404),
        ("thumbnails/{}/..", 400),
        ("thumbnails/{}/0/attention", 400),
        ("thumbnails/{}/1/attention?task=0", 404),
        ("thumbnails/{}/0/attention?task=3", 404),
        ("thumbnails/{}/0/attention?task=0&part=1", 404),
        ("thumbnails/{}/0/attention?task=0&part=x", 400),
        ("api/images?since=-1", 400),
        ("api/images?since=x", 400),
        ("tiles/unknown/0/0/0/0", 404),
        ("tiles/{}/0/99/0/0", 404),
        ("tiles/{}/0/-1/0/0", 404),
        ("tiles/{}/0/0/1/0", 404),
        ("tiles/{}/0/0/99999999999999999999999/0", 404),
        ("tiles/{}/0/0/0/x", 400),
        ("tiles/{}/0/0/0/" + "9" * 600, 414),
        ("attention/{}/0/0/0/0", 400),
        ("attention/{}/0/0/0/0?task=3", 404),
        ("attention/{}/0/0/0/0?task=-1", 400),
        ("attention/{}/0/0/0/0?task=0&min_rank=nan", 400),
        ("attention/{}/0/0/0/0?task=0&min_rank=2", 400),
        ("attention/{}/0/0/0/0?task=0&colour_map=../../etc/passwd", 400),
        ("attention/{}/0/0/0/0?task=0&more=" + "x" * 600, 414),
        ("attention/{}/0/0/0/0?task=0&scale=x", 400),
        ("attention/{}/0/0/0/0?task=0&part=1", 404),
        ("attention/{}/0/0/0/0?task=0&part=-1", 400),
        ("attention/{}/0/0/0/0?task=0&smooth=x", 400),
        ("thumbnails/unknown/0", 404),
        ("api/queue?paused=x", 400),
        ("patches/{}/-1", 404),
        ("colour-maps/none", 400),
        ("static/../server.py", 404),
        ("static/..%2fserver.py", 404),
        ("static/viewer.js%00", 404),
        ("../token/", 404),
        ("docs", 404),
        ("openapi.json", 404),
    ],
)
def test_invalid_addresses_are_refused_in_a_few_plain_words(
    served: Served, address: str, status: int
) -> None:
    app, rows = served
    answered = ask(app, address.replace("{}", rows["a.png"]["id"]))
    assert answered.status == status
    assert answered.headers["content-type"].startswith("text/plain")
    assert 0 < len(answered.body) < 40


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8000"}, 421),
        ({"host": None}, 421),
        ({"host": "localhost:80:80"}, 421),
        ({"host": "localhost:evil.example"}, 421),
        ({"host": "localhost:"}, 421),
        ({"host": "localhost:8000\n"}, 421),
        ({"host": "[::1]:8000"}, 421),
        ({"host": "localhost:9"}, 200),  # through a tunnel
        ({"method": "POST"}, 405),
        ({"method": "DELETE"}, 405),
        ({"method": "OPTIONS"}, 405),
        ({"headers": {"cookie": "x" * 16_000}}, 200),
        ({"headers": {"cookie": "x" * 16_000, "accept": "y" * 1000}}, 431),
        ({"headers": {"content-length": "1"}}, 413),
        ({"headers": {"transfer-encoding": "chunked"}}, 413),
        ({"token": "other"}, 404),
        ({"token": ""}, 404),
    ],
)
def test_only_get_requests_to_this_machine_are_accepted(
    served: Served, options: dict[str, Any], status: int
) -> None:
    answered = ask(served[0], "", **options)
    assert answered.status == status
    assert "access-control-allow-origin" not in answered.headers


def test_the_page_says_what_predictions_are_for(served: Served) -> None:
    page = ask(served[0], "").body.decode()
    assert PURPOSE in page
    assert "Attention is not a detection" in page


def test_only_our_own_scripts_may_run(served: Served) -> None:
    app, _ = served
    for address in ("", "static/viewer.js", "static/leaflet.js", "api/images", "nothing"):
        headers = ask(app, address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    page = ask(app, "").body.decode()
    assert "<script>" not in page
    assert "style=" not in page
    assert "http" not in page.replace("http-equiv", "")  # it works offline
