"""Presets of public encoders: complete, found by name, and listed in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ips.errors import ConfigError
from ips.slides.coords import Resolution, preset_resolution
from ips.slides.presets import PRESETS, Preset, find_preset, preset_named

DOCS = Path(__file__).parents[2] / "docs" / "slides.md"


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_a_preset_is_complete(preset: Preset) -> None:
    assert preset.name == preset.name.lower()
    assert re.fullmatch(r"[\w-]+/[\w.-]+", preset.repo)
    assert preset.crop <= preset.resize <= preset.patch_size
    mean, std = preset.pixels
    assert len(mean) == len(std) == 3
    assert all(0 < value < 1 for value in (*mean, *std))
    assert preset.options == {} or preset.library == "timm"


def test_the_documentation_lists_every_preset() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \|(.*)\|$", DOCS.read_text(), re.MULTILINE))
    for name, preset in PRESETS.items():
        size = f"{preset.patch_size} px" + (f" at {preset.mpp:g} µm" if preset.mpp else "")
        access = "login" if preset.gated else "open"
        cells = [size, f"{preset.dim:,}", preset.tokens, preset.licence, access, preset.library]
        assert [cell.strip() for cell in rows[name].split("|")][:6] == cells
        assert preset.repo in rows[name]


def test_names_in_upper_or_lower_case() -> None:
    assert find_preset("Phikon-V2") is PRESETS["phikon-v2"]
    assert find_preset("resnet50") is None
    assert find_preset(None) is None
    with pytest.raises(ConfigError, match=r"--encoder conch: there is no such preset: .* uni, "):
        preset_named("conch")


def test_a_preset_gives_the_patches_that_nobody_asked_for() -> None:
    uni = preset_resolution(PRESETS["uni"])
    assert Resolution().filled(uni) == Resolution(256, mpp=0.5)
    assert Resolution(512).filled(uni) == Resolution(512, mpp=0.5)
    assert Resolution(level=1).filled(uni) == Resolution(256, level=1)
    assert Resolution(512, magnification=10).filled(uni) == Resolution(512, magnification=10)
    assert Resolution(64, scale=0.5).filled(preset_resolution(None)) == Resolution(64, scale=0.5)
    assert preset_resolution(PRESETS["dinov2-base"]) == Resolution(224)
