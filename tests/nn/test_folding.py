"""The folded copy gives what the encoder gives in evaluation mode, and follows its weights."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ips.nn import FeatureProjector, evaluating, resnet18, resnet50, thin_resnet
from ips.nn.folding import FoldedEncoder

ENCODERS: dict[str, Callable[[], nn.Module]] = {
    "resnet18, 2 stages": lambda: resnet18(stages=2, channels=1, width=16),
    "resnet50, 1 stage": lambda: resnet50(stages=1, channels=1, width=8),
    "thin with norm": lambda: thin_resnet(stages=2, channels=1, width=8, norm=True),
}


def lived_in(encoder: nn.Module) -> nn.Module:
    """In float64, with BatchNorms that have seen something."""
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 2.0)
            nn.init.normal_(part.bias)
            assert part.running_mean is not None
            assert part.running_var is not None
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return encoder.double()


def patches(encoder: nn.Module, n: int = 5) -> Tensor:
    shape = (20,) if isinstance(encoder, FeatureProjector) else (1, 24, 24)
    return torch.randn(n, *shape, dtype=torch.float64)


def same(folded: FoldedEncoder, encoder: nn.Module, x: Tensor) -> None:
    folded.refresh()
    with evaluating(encoder):
        torch.testing.assert_close(folded(x), encoder(x), rtol=1e-10, atol=1e-10)


@pytest.fixture(params=ENCODERS)
def encoder(request: pytest.FixtureRequest) -> nn.Module:
    return lived_in(ENCODERS[request.param]())


def test_folded_output_is_that_of_evaluation_mode(encoder: nn.Module) -> None:
    same(FoldedEncoder(encoder), encoder, patches(encoder))


def test_it_follows_an_optimizer_step_and_running_statistics(encoder: nn.Module) -> None:
    folded, x = FoldedEncoder(encoder), patches(encoder)
    same(folded, encoder, x)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(2):
        encoder.train()(x).square().sum().backward()
        optimizer.step()
        same(folded, encoder, x)


def test_it_follows_running_statistics_alone(encoder: nn.Module) -> None:
    folded, x = FoldedEncoder(encoder), patches(encoder)
    same(folded, encoder, x)
    before = folded(x)
    with torch.no_grad():
        encoder.train()(x)
    same(folded, encoder, x)
    assert not torch.allclose(folded(x), before)


@pytest.mark.parametrize("assign", [False, True])
def test_it_follows_loaded_weights(encoder: nn.Module, assign: bool) -> None:
    folded, x = FoldedEncoder(encoder), patches(encoder)
    same(folded, encoder, x)
    other = lived_in(copy.deepcopy(encoder))
    encoder.load_state_dict(other.state_dict(), assign=assign)
    same(folded, other, x)


def test_it_follows_a_change_of_precision() -> None:
    encoder = lived_in(thin_resnet(stages=1, channels=1, width=8)).float()
    folded = FoldedEncoder(encoder)
    folded.refresh()
    encoder.double()
    same(folded, encoder, patches(encoder))


def test_the_original_is_untouched(encoder: nn.Module) -> None:
    before = copy.deepcopy(encoder.state_dict())
    flags = [part.training for part in encoder.modules()]
    folded = FoldedEncoder(encoder)
    folded.refresh()
    folded(patches(encoder))
    assert all(torch.equal(t, before[name]) for name, t in encoder.state_dict().items())
    assert [part.training for part in encoder.modules()] == flags
    assert all(parameter.requires_grad for parameter in encoder.parameters())


class Untraceable(nn.Module):
    """What it does depends on what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x))
        return (y * (2 if x.mean() > 0 else 3)).mean(dim=(2, 3))


def hooked() -> nn.Module:
    encoder = thin_resnet(stages=1, channels=1, width=4)
    encoder.register_forward_hook(lambda module, inputs, output: output * 2)
    return encoder


@pytest.mark.parametrize(
    "make",
    [Untraceable, hooked, FeatureProjector, lambda: nn.Sequential(nn.Flatten(), nn.Linear(576, 4))],
)
def test_networks_that_cannot_be_folded_raise(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match="encoder"):
        FoldedEncoder(make())


class WithConstant(nn.Module):
    """Holds a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.grey = torch.full((), 0.5, dtype=torch.float64)
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x - self.grey))
        return y.mean(dim=(2, 3))


def tied() -> nn.Module:
    """Two convolutions with one weight, each before a BatchNorm of its own."""
    first, second = nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3)
    second.weight = first.weight
    return nn.Sequential(first, nn.BatchNorm2d(1), second, nn.BatchNorm2d(1), nn.Flatten())


def parametrized() -> nn.Module:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 4, 3))
    return nn.Sequential(conv, nn.BatchNorm2d(4), nn.Flatten())


def over_rows() -> nn.Module:
    """The BatchNorm's channels are not those of the linear layer before it."""
    return nn.Sequential(nn.Flatten(0, 1), nn.Linear(24, 24), nn.BatchNorm1d(24), nn.Flatten())


@pytest.mark.parametrize("make", [WithConstant, tied, parametrized, over_rows])
def test_uncommon_networks_are_folded_correctly_or_not_at_all(
    make: Callable[[], nn.Module],
) -> None:
    encoder = lived_in(make())
    try:
        folded = FoldedEncoder(encoder)
    except ValueError:
        return
    same(folded, encoder, patches(encoder))
