from __future__ import annotations

from typing import TypeVar

import kornia.augmentation as K
import pytest
import torch
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.pretraining.augment import QuarterTurns, TwoViews, blur_kernel

# Table 9 of the paper: the probability in each of the two views.
PROBABILITIES: dict[type[nn.Module], tuple[float, float]] = {
    K.RandomVerticalFlip: (0.5, 0.5),
    K.RandomHorizontalFlip: (0.5, 0.5),
    K.ColorJitter: (0.8, 0.8),
    K.RandomGrayscale: (0.2, 0.2),
    K.RandomGaussianBlur: (1.0, 0.1),
    K.RandomSolarize: (0.0, 0.2),
}


def views(*, patch: int = 16, channels: int = 3) -> TwoViews:
    return TwoViews(patch=patch, channels=channels)


Kind = TypeVar("Kind", bound=nn.Module)


def part(sequence: nn.Module, kind: type[Kind]) -> Kind | None:
    return next((module for module in sequence.children() if isinstance(module, kind)), None)


def share_changed(module: nn.Module, pixels: Tensor) -> float:
    changed = (module(pixels) - pixels).abs().flatten(1).amax(dim=1) > 1e-6
    return float(changed.float().mean())


@pytest.mark.parametrize("kind", PROBABILITIES)
@pytest.mark.parametrize("view", [0, 1])
def test_each_happens_as_often_as_the_table_says(kind: type[nn.Module], view: int) -> None:
    pixels = torch.rand(1000, 3, 6, 6)
    module = part((views().first, views().second)[view], kind)
    share = 0.0 if module is None else share_changed(module, pixels)
    weakest = 0.95 if kind is K.RandomGaussianBlur else 1  # with a sigma below 0.2 nothing changes
    assert share == pytest.approx(PROBABILITIES[kind][view] * weakest, abs=0.06)


def test_order_and_number_of_what_is_done() -> None:
    both = views()
    assert [len(list(view.children())) for view in (both.first, both.second)] == [7, 8]
    kinds = [type(module) for module in both.second.children()]
    assert kinds == [
        QuarterTurns,
        K.RandomVerticalFlip,
        K.RandomHorizontalFlip,
        K.RandomResizedCrop,
        K.ColorJitter,
        K.RandomGrayscale,
        K.RandomGaussianBlur,
        K.RandomSolarize,
    ]


def test_quarter_turns_are_exact_and_equally_likely() -> None:
    patch = torch.arange(48.0).view(1, 3, 4, 4)
    turned = QuarterTurns()(patch.expand(1000, -1, -1, -1))
    shares = [
        float((turned == patch.rot90(k, (2, 3))).flatten(1).all(dim=1).float().mean())
        for k in range(4)
    ]
    assert sum(shares) == pytest.approx(1)
    assert shares == pytest.approx([0.25] * 4, abs=0.06)


def test_crops_cover_a_fifth_to_all_of_the_patch() -> None:
    crop = part(views(patch=100).first, K.RandomResizedCrop)
    assert crop is not None
    out = crop(torch.rand(400, 1, 100, 100))
    assert out.shape == (400, 1, 100, 100)
    box = crop._params["src"]  # (400, 4, 2), corners
    sides = box.amax(dim=1) - box.amin(dim=1) + 1
    areas = sides.prod(dim=1) / 100**2
    assert 0.18 < float(areas.min()) < 0.3  # whole pixels round a little
    assert 0.9 < float(areas.max()) <= 1


def test_jitter_has_the_strengths_of_the_table() -> None:
    jitter = part(views().first, K.ColorJitter)
    assert jitter is not None
    jitter(torch.rand(2000, 3, 2, 2))
    for name in ("brightness", "contrast", "saturation"):
        factor = jitter._params[f"{name}_factor"]
        assert float(factor.min()) == pytest.approx(0.2, abs=0.02)
        assert float(factor.max()) == pytest.approx(1.8, abs=0.02)
    turn = jitter._params["hue_factor"]
    assert float(turn.min()) == pytest.approx(-0.2, abs=0.01)
    assert float(turn.max()) == pytest.approx(0.2, abs=0.01)


def test_solarize_inverts_from_150_on() -> None:
    solarize = part(views().second, K.RandomSolarize)
    assert solarize is not None
    pixels = (torch.tensor([0, 149, 150, 255]) / 255).view(1, 1, 2, 2).expand(200, 3, 2, 2)
    done = solarize(pixels)
    changed = done[(done != pixels).flatten(1).any(dim=1)]
    assert len(changed)
    assert (changed[0, 0].flatten() * 255).tolist() == pytest.approx([0, 149, 105, 0], abs=1e-3)


@pytest.mark.parametrize(("size", "kernel"), [(224, 23), (112, 11), (64, 7), (32, 3), (8, 3)])
def test_the_blur_shrinks_with_the_view(size: int, kernel: int) -> None:
    assert blur_kernel(size) == kernel
    blur = part(views(patch=size).first, K.RandomGaussianBlur)
    assert blur is not None
    assert blur.flags["kernel_size"] == kernel


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("patch", "size"), [(8, 8), (256, 224)])
def test_views_are_pixels_that_differ(patch: int, size: int, channels: int) -> None:
    patches = torch.randint(256, (3, channels, patch, patch), dtype=torch.uint8)
    before = patches.clone()
    first, second = views(patch=patch, channels=channels)(patches)
    assert first.shape == second.shape == (3, channels, size, size)
    for view in (first, second):
        assert view.dtype == torch.float32
        assert 0 <= float(view.min()) <= float(view.max()) <= 1
    assert (first != second).flatten(1).any(dim=1).all()
    assert torch.equal(patches, before)


def test_grey_patches_keep_what_needs_no_colour() -> None:
    kinds = [type(module) for module in views(channels=1).second.children()]
    assert K.RandomGrayscale not in kinds
    assert len(kinds) == 7
    jitter = part(views(channels=1).first, K.ColorJitter)
    assert jitter is not None
    strengths = jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
    assert strengths == (0.8, 0.8, 0.0, 0.0)


def test_the_same_seed_gives_the_same_views() -> None:
    patches = torch.randint(256, (4, 3, 16, 16), dtype=torch.uint8)
    both = views()
    results = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        results.append(torch.stack(both(patches)))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_tiny_patches_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 4 px"):
        views(patch=3)
