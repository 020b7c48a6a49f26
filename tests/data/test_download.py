"""Downloads over loopback: complete or absent, resumed, from several mirrors."""

from __future__ import annotations

import hashlib
import io
import socket
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ips.data.download import check_url, fetch, unpack
from ips.errors import DataError

CONTENT = bytes(range(256)) * 2000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves files by path and records requests in ``asked``, with their range.

    Args:
        files: content by path.
        ranges: whether range requests are supported.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, bytes], *, ranges: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges = files, ranges
        self.cut: int | None = None
        self.kind = "application/octet-stream"
        self.asked: list[tuple[str, str | None]] = []

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers["Range"]
        server.asked.append((self.path, wanted))
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start, length = 0, len(content)
        if wanted is not None and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start < length else 416)
            last = f"{start}-{length - 1}" if start < length else "*"
            self.send_header("Content-Range", f"bytes {last}/{length}")
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("Content-Type", server.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cut])

    def log_message(self, format: str, *words: object) -> None:
        pass


def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use neither the proxy nor the name server of this machine."""
    resolve = socket.getaddrinfo

    def local(host: str, *args: Any, **options: Any) -> Any:
        if host != "127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **options)

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", local)


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from serving(Server({"/f.bin": CONTENT}, ranges=request.param))


@pytest.fixture
def other() -> Iterator[Server]:
    yield from serving(Server({"/f.bin": CONTENT}))


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_a_file_is_downloaded_once(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "deep" / "f.bin"
    seen: list[tuple[str, float, float | None]] = []
    for _ in range(2):
        fetch(path, [f"{server.home}/f.bin"], md5=MD5, progress=lambda *step: seen.append(step))
        assert path.read_bytes() == CONTENT
    assert server.asked == [("/f.bin", None)]
    assert [file.name for file in path.parent.iterdir()] == ["f.bin"]
    assert seen[-1] == ("f.bin, MB", 0.512, 0.512)


def test_an_interrupted_download_is_resumed(tmp_path: Path, server: Server) -> None:
    path, part, url = tmp_path / "f.bin", tmp_path / "f.bin.partial", f"{server.home}/f.bin"
    server.cut = 300_000
    with pytest.raises(DataError, match=r"broke off after 300,000 of 512,000 bytes.*try again"):
        fetch(path, [url], md5=MD5)
    assert part.read_bytes() == CONTENT[:300_000]
    assert not path.exists()
    server.cut = None
    fetch(path, [url], md5=MD5)
    assert path.read_bytes() == CONTENT
    assert not part.exists()
    assert server.asked == [("/f.bin", None), ("/f.bin", "bytes=300000-")]


def test_ctrl_c_keeps_the_partial_file(tmp_path: Path, other: Server) -> None:
    def interrupt(what: str, done: float, total: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path / "f.bin", [f"{other.home}/f.bin"], progress=interrupt)
    kept = (tmp_path / "f.bin.partial").read_bytes()
    assert kept
    assert CONTENT.startswith(kept)


def test_a_complete_partial_file_is_accepted(tmp_path: Path, server: Server) -> None:
    (tmp_path / "f.bin.partial").write_bytes(CONTENT)
    fetch(tmp_path / "f.bin", [f"{server.home}/f.bin"])
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [10, len(CONTENT) + 10])
def test_a_partial_file_of_another_file_is_discarded(
    tmp_path: Path, server: Server, length: int
) -> None:
    (tmp_path / "f.bin.partial").write_bytes(b"x" * length)
    fetch(tmp_path / "f.bin", [f"{server.home}/f.bin"], md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


def test_a_partial_file_that_is_too_long_is_discarded(tmp_path: Path, server: Server) -> None:
    (tmp_path / "f.bin.partial").write_bytes(CONTENT + b"more")
    fetch(tmp_path / "f.bin", [f"{server.home}/f.bin"])
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


def test_mirrors_are_tried_in_order(tmp_path: Path, server: Server, other: Server) -> None:
    server.files["/f.bin"] = b"something else"
    urls = [f"http://127.0.0.1:{closed_port()}/f.bin", f"{server.home}/f.bin"]
    fetch(tmp_path / "f.bin", [*urls, f"{other.home}/f.bin", f"{other.home}/never"], md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT
    assert len(server.asked) == len(other.asked) == 1


def test_a_second_mirror_resumes_the_download_of_the_first(
    tmp_path: Path, server: Server, other: Server
) -> None:
    server.cut = 1000
    fetch(tmp_path / "f.bin", [f"{home}/f.bin" for home in (server.home, other.home)], md5=MD5)
    assert other.asked == [("/f.bin", "bytes=1000-")]


def test_the_error_names_each_mirror_and_its_reason(
    tmp_path: Path, server: Server, other: Server
) -> None:
    server.files["/f.bin"] = b"something else"
    urls = [
        f"{server.home}/f.bin",
        f"{other.home}/absent",
        f"http://127.0.0.1:{closed_port()}/f.bin",
        "http://no-such-host.invalid/f.bin",
        (tmp_path / "absent").as_uri(),
    ]
    with pytest.raises(DataError) as caught:
        fetch(tmp_path / "f.bin", urls, md5=MD5)
    message = str(caught.value)
    assert "\n" not in message
    reasons = [f"instead of {MD5}", "answer 404, Not Found", "connection refused", "no network"]
    for url, reason in zip(urls, [*reasons, "no such file"], strict=True):
        _, _, after = message.partition(f"{url} (")
        assert reason in after.partition(")")[0], message
    assert not list(tmp_path.iterdir())


def test_a_web_page_is_refused_and_keeps_the_partial_file(tmp_path: Path, server: Server) -> None:
    (tmp_path / "f.bin.partial").write_bytes(CONTENT[:1000])
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(DataError, match="a web page instead of the file"):
        fetch(tmp_path / "f.bin", [f"{server.home}/f.bin"])
    assert (tmp_path / "f.bin.partial").read_bytes() == CONTENT[:1000]


def test_a_file_that_is_no_zip_archive_is_refused(tmp_path: Path, other: Server) -> None:
    other.files["/a.zip"] = b"gone fishing"
    with pytest.raises(DataError, match="not a zip archive"):
        fetch(tmp_path / "a.zip", [f"{other.home}/a.zip"])
    assert not list(tmp_path.iterdir())


def test_a_local_folder_can_be_a_mirror(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(CONTENT)
    (tmp_path / "f.bin.partial").write_bytes(b"begun")
    fetch(tmp_path / "f.bin", [(tmp_path / "there").as_uri()], md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["ftp://host/f", "/mnt/f", "data:,f", "jar:file:///f", "httpx://f"])
def test_unsupported_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="begin it with https://"):
        check_url(url)
    with pytest.raises(DataError, match="begin it with https://"):
        fetch(tmp_path / "f.bin", [url])


def test_an_existing_file_with_a_wrong_checksum_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "f.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=rf"f\.bin is not the published file.*{MD5}.*delete it"):
        fetch(tmp_path / "f.bin", [], md5=MD5)
    assert (tmp_path / "f.bin").read_bytes() == b"mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_reported_without_trying_other_mirrors(
    tmp_path: Path, server: Server, other: Server
) -> None:
    (tmp_path / "f.bin.partial").symlink_to("/dev/full")
    with pytest.raises(DataError, match=r"f\.bin cannot be written \(no space left.*make room"):
        fetch(tmp_path / "f.bin", [f"{home}/f.bin" for home in (server.home, other.home)])
    assert not other.asked


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/f\.bin cannot be written"):
        fetch(tmp_path / "file" / "f.bin", ["http://127.0.0.1/"])


def test_unpacking_completes_a_folder(tmp_path: Path) -> None:
    archive, folder = tmp_path / "a.zip", tmp_path / "out"
    archive.write_bytes(zipped(**{"one.jpg": b"1", "sub/two.jpg": b"22", "three.jpg": b"333"}))
    seen: list[tuple[str, float, float | None]] = []
    unpack(archive, folder, progress=lambda *step: seen.append(step))
    assert seen == [("a.zip, files", n, 3) for n in (1, 2, 3)]
    (folder / "one.jpg").write_bytes(b"x")  # as long as it should be: kept
    (folder / "sub" / "two.jpg").write_bytes(b"2")
    (folder / "three.jpg").unlink()
    unpack(archive, folder)
    found = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*.*")}
    assert found == {"one.jpg": b"x", "sub/two.jpg": b"22", "three.jpg": b"333"}


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
def test_archives_cannot_write_outside_their_folder(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped(**{"good": b"1", name: b"2"}))
    with pytest.raises(DataError, match="outside its folder"):
        unpack(archive, tmp_path / "deep" / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_a_damaged_archive_leaves_no_damaged_file(tmp_path: Path) -> None:
    archive, content = tmp_path / "a.zip", zipped(one=b"first" * 9, two=b"second" * 9)
    archive.write_bytes(content.replace(b"second", b"secand", 1))
    with pytest.raises(DataError, match=r"a\.zip is damaged.*delete it"):
        unpack(archive, tmp_path / "out")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["one"]
    archive.write_bytes(content[:40])
    with pytest.raises(DataError, match=r"a\.zip is damaged"):
        unpack(archive, tmp_path / "out")


def test_names_that_are_not_utf8_are_damage(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    content = zipped(**{"caf\u00e9.jpg": b"1"})  # its flag says that names are UTF-8
    archive.write_bytes(content.replace("\u00e9".encode(), b"\xff\xff"))
    with pytest.raises(DataError, match=r"a\.zip is damaged \('utf-8' codec.*download it again"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("place", range(0, 110, 7))
def test_any_damage_is_one_sentence(tmp_path: Path, place: int) -> None:
    content = bytearray(zipped(one=b"first" * 9))
    content[-place - 1] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(content)
    with suppress(DataError):  # some bytes have no meaning; no other error may occur
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jpg", bytes(10**7))
    with pytest.raises(DataError, match=r"a\.zip has .* bytes and unpacks to 10,000,000"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()
