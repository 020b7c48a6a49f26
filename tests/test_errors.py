"""The words of error messages."""

from __future__ import annotations

import errno
import os

import pytest

from ips.errors import DataError, because, shown


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOSPC, "make room"),
        (errno.EACCES, "permissions"),
        (errno.EIO, "another disk"),
        (errno.ENAMETOOLONG, "shorter name"),
        (errno.ELOOP, "symbolic links"),
    ],
)
def test_an_error_of_the_system_has_its_own_remedy(code: int, remedy: str) -> None:
    words = os.strerror(code)
    quoted = RuntimeError(f"unable to open file (errno = {code}, error message = '{words}')")
    for error in (OSError(code, words), quoted):
        sentence = because(error, remedy="copy the file again")
        assert sentence.startswith(f"({words.lower()}): ")
        assert remedy in sentence
        assert "copy" not in sentence or code == errno.EIO


def test_an_error_of_a_file_has_the_remedy_of_the_caller() -> None:
    assert because(ValueError("bad\nheader"), remedy="copy it") == "(bad header): copy it"
    assert because(EOFError(), remedy="copy it") == "(EOFError): copy it"
    assert because(KeyError("type"), remedy="copy it") == "(no 'type'): copy it"


def test_a_quoted_value_is_short_however_large_it_is() -> None:
    bomb: list[object] = ["x"] * 9
    for _ in range(30):
        bomb = [bomb] * 9  # 9^31 values
    for value in (bomb, "k" * 10**6, dict.fromkeys(range(1000), bomb), 10**9000, -(16**9000)):
        assert len(shown(value)) <= 200
    assert shown("two words") == "'two words'"
    assert shown(12) == "12"


def test_a_message_is_one_line_of_limited_length() -> None:
    message = str(DataError("a.csv: column '\x1b[2Jé\n'" + "k" * 10**6 + ": rename it"))
    assert message.startswith(r"a.csv: column '\x1b[2Jé\n'kkk")
    assert message.endswith("kkk: rename it")
    assert len(message) < 1100


def test_control_characters_do_not_make_a_quoted_value_longer() -> None:
    assert len(shown(1000 * "\0", quote=False)) < 200
    assert len(shown(1000 * "\0")) < 200
