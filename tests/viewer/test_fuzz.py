"""Any request gets a page of ours or a short plain refusal; nothing else leaks."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from ips.loading import load
from ips.predictor import Predictor
from ips.viewer import Library, create_app, find_images
from tests.viewer.asking import ask
from tests.viewer.opening import single
from tests.viewer.viewer_files import picture

REFUSED = {400, 404, 405, 413, 414, 421}
REFUSALS = {b"not found", b"no such image", b"bad request", b"address too long"}
many = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return load(run)


@pytest.fixture(scope="module")
def app(predictor: Predictor, run: Path, images: Path) -> FastAPI:
    library = Library(predictor, run, find_images([images], predictor.config))
    with library._changed:  # predict one image, without the thread
        entry = next(iter(library.entries.values()))
        entry.id = "known"
        library.entries = {"known": entry}
    library._predict(entry)
    return create_app(library, token="token")


words = st.one_of(
    st.sampled_from(
        [
            *(
                "api",
                "images",
                "known",
                "run",
                "tiles",
                "attention",
                "patches",
                "static",
                "colour-maps",
                "queue",
                "thumbnails",
                "annotations",
            ),
            *("..", ".", "", "~", "etc", "passwd", "secret.txt", "a.png", "viewer.js", "%2e%2e"),
            *("0", "1", "-1", "2", "1e9", "0x1", "٣", "9" * 30, "\x00", "\\..\\", "//", "viridis"),
        ]
    ),
    st.text(max_size=12),
)
paths = st.lists(words, max_size=7).map("/".join)
queries = st.dictionaries(
    st.sampled_from(
        ["task", "part", "min_rank", "colour_map", "scale", "smooth", "since", "all", "x"]
    ),
    st.one_of(st.integers().map(str), st.floats().map(str), st.text(max_size=20)),
    max_size=4,
).map(lambda pairs: "&".join(f"{k}={quote(v)}" for k, v in pairs.items()))


@many
@given(path=paths, query=queries, encode=st.booleans())
@example(path="static/../../../../../../etc/passwd", query="", encode=False)
@example(path="api/images/", query="", encode=False)
@example(path="tiles/known/0/0/0/0/../../../../secret.txt", query="", encode=True)
def test_any_address_gets_a_response_or_a_refusal(
    app: FastAPI, path: str, query: str, encode: bool
) -> None:
    path = quote(path, safe="/" if encode else "/%.")
    answered = ask(app, f"{path}?{query}")
    assert b"SECRET" not in answered.body
    assert b"root:" not in answered.body
    if answered.status != 200:
        assert answered.status in REFUSED
        assert answered.headers["content-type"] == "text/plain; charset=utf-8"
        assert answered.body in REFUSALS  # refusals repeat nothing of the request


sizes = st.one_of(st.integers(-3, 6), st.integers())


@many
@given(
    number=st.one_of(st.just(0), sizes),
    zoom=sizes,
    column=sizes,
    row=sizes,
    kind=st.sampled_from(["tiles", "attention"]),
)
def test_only_tiles_inside_the_image_exist(
    app: FastAPI, number: int, zoom: int, column: int, row: int, kind: str
) -> None:
    answered = ask(app, f"{kind}/known/{number}/{zoom}/{column}/{row}?task=0")
    side = 256 * 2 ** (2 - zoom) if 0 <= zoom <= 2 else 0
    there = side and 0 <= column * side < 700 and 0 <= row * side < 500
    assert answered.status == (200 if there and number == 0 else 404)


@many
@given(
    host=st.one_of(st.text(max_size=30), st.sampled_from(["localhost", "127.0.0.1", "[::1]:80"])),
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "TRACE", "get"]),
    length=st.one_of(st.none(), st.integers(0, 10**12)),
    token=st.one_of(st.just("token"), st.text(alphabet="toke/.n", max_size=8)),
)
def test_only_a_valid_request_gets_the_page(
    app: FastAPI, host: str, method: str, length: int | None, token: str
) -> None:
    headers = {} if length is None else {"content-length": str(length)}
    answered = ask(app, "", host=host, method=method, headers=headers, token=token)
    proper = (
        re.fullmatch(r"(localhost|127\.0\.0\.1)(:[0-9]{1,5})?", host) is not None
        and method == "GET"
        and not length
        and token.strip("/") == "token" == token
    )
    assert answered.status == 200 if proper else answered.status in REFUSED


characters = st.characters(
    codec=None, exclude_characters="/\0"
)  # also characters that cannot be encoded
names = st.text(characters, min_size=1, max_size=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names")
    Image.fromarray(picture(60, 60)).save(path / "a.png")
    return path


@settings(many, max_examples=40)
@given(name=names)
@example(name="</script><script>alert(1)</script>")
@example(name='"><img src=x onerror=alert(1)>')
def test_file_names_do_not_change_the_page(
    app: FastAPI, predictor: Predictor, run: Path, folder: Path, name: str
) -> None:
    library = Library(predictor, run, single([folder / "a.png"]))
    entry = next(iter(library.entries.values()))
    entry.name = entry.message = name
    other = create_app(library, token="token")
    assert ask(other, "").body == ask(app, "").body  # no name is ever written into the page
    listed = ask(other, "api/images")
    assert listed.headers["content-type"] == "application/json"  # and JSON is not sniffed as one
    assert listed.headers["x-content-type-options"] == "nosniff"
    assert listed.json["images"][0]["name"] == name
    assert ask(other, f"api/images/{entry.id}/0").headers["content-type"] == "application/json"
