"""`ips doctor` finds what is installed, and says how to get what is missing."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from types import ModuleType

import pytest
import torch

from ips import doctor
from ips._version import __version__
from ips.bench import devices
from ips.doctor import Finding, examine
from ips.errors import ConfigError
from tests.command import Outcome


def finding(name: str, *, topic: str | None = None) -> Finding:
    (found,) = (one for one in examine() if one.name == name and topic in (None, one.topic))
    return found


def test_versions_and_devices_are_listed() -> None:
    assert finding("ips").value == __version__
    assert finding("torch", topic="versions").value == torch.__version__
    assert str(torch.get_num_threads()) in finding("CPU").value
    assert "Pillow" in finding("PNG, JPEG, WebP").value


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {name: metadata.version(name) for name in ("lightning", "scipy")}

    def version(name: str) -> str | None:
        return None if name == "fastapi" else found.get(name, "1.0")

    monkeypatch.setattr(doctor, "_version", version)
    extra = finding("viewer")
    assert extra.value == "without fastapi"
    assert extra.remedy == "pip install 'iterative-patch-selection[viewer]'"
    assert not extra.needed
    assert finding("train").remedy is None


def test_a_missing_requirement_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "h5py" else "1.0")
    outcome = Outcome("doctor")
    assert outcome.code == 1
    assert "h5py: not installed: pip install 'h5py>=" in outcome.out


def test_little_disk_and_memory_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    little = type("Usage", (), {"free": 2**30})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: little)
    monkeypatch.setattr("ips.advice.cost.available_bytes", lambda: 2**31)
    assert "make room" in str(finding("disk").remedy)
    assert "TMPDIR" in str(finding("temporary files").remedy)
    assert "lazy" in str(finding("memory").remedy)


def test_a_library_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ModuleType):
        @property
        def __library_version__(self) -> str:
            raise OSError("libopenslide.so: cannot open")

    monkeypatch.setitem(sys.modules, "openslide", Broken("openslide"))
    found = finding("NDPI, MRXS and others")
    assert "libopenslide.so" in found.value
    assert found.remedy == "pip install 'iterative-patch-selection[slides]'"


def test_the_command_prints_everything(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome("doctor")
    assert outcome.code == 0
    assert all(topic in outcome.out for topic in ("versions", "extras", "devices", "resources"))


def test_a_device_is_compared_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_N", 32)
    monkeypatch.setattr(devices, "_SIDE", 16)
    outcome = Outcome("doctor", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    assert "100%" in outcome.out

    step = devices._step

    def wrong(net: object, images: object) -> devices._Step:
        found = step(net, images)  # type: ignore[arg-type]
        scale = 1.01 ** len(steps)
        steps.append(scale)
        return devices._Step(found.kept, found.loss * scale, found.gradient)

    steps: list[float] = []
    monkeypatch.setattr(devices, "_step", wrong)
    outcome = Outcome("doctor", "--device", "cpu")
    assert outcome.code == 1
    assert "does not compute what the CPU computes" in outcome.err


def test_a_device_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="--device nonsense: no such device: give cuda"):
        devices.check_device("nonsense")
    with pytest.raises(
        ConfigError, match=r"--device xpu: it cannot be used \([^.]*\): `ips doctor`"
    ):
        devices.check_device("xpu")
