"""Weight files of others: read without running their code, and fitted to the encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from ips.errors import ConfigError
from ips.nn import ResNet, resnet18
from ips.training.weights import load_weights

State = dict[str, Tensor]


def encoder(**options: int | bool) -> ResNet:
    return resnet18(**{"stages": 2, "width": 4, **options})


def published() -> State:
    """As torchvision would publish it: all four stages and the classifier."""
    state = encoder(stages=4).state_dict()
    state = {n: torch.rand_like(t) if t.is_floating_point() else t + 7 for n, t in state.items()}
    return state | {"fc.weight": torch.rand(10, 32), "fc.bias": torch.rand(10)}


def write(path: Path, state: State) -> Path:
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("stages", [2, 4])
def test_weights_load_and_classifier_and_cut_stages_are_passed_over(
    tmp_path: Path, suffix: str, stages: int
) -> None:
    state, target = published(), encoder(stages=stages)
    load_weights(target, write(tmp_path / f"weights{suffix}", state))
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_a_state_dict_may_be_wrapped(tmp_path: Path) -> None:
    state, target = published(), encoder()
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "weights.pth")
    load_weights(target, tmp_path / "weights.pth")
    assert torch.equal(target.conv1.weight, state["conv1.weight"])


def test_files_from_before_batch_norms_counted_batches_load(tmp_path: Path) -> None:
    """torchvision's first ImageNet files have no ``num_batches_tracked``."""
    state = {n: t for n, t in published().items() if not n.endswith("num_batches_tracked")}
    target = encoder()
    load_weights(target, write(tmp_path / "weights.pth", state))
    assert torch.equal(target.bn1.running_var, state["bn1.running_var"])


def test_the_norm_over_the_embedding_stays_as_it_is(tmp_path: Path) -> None:
    target = encoder(norm=True)
    target.norm.weight.data.fill_(3.0)
    load_weights(target, write(tmp_path / "weights.pth", published()))
    assert target.norm.weight.eq(3.0).all()


def test_a_grey_encoder_sees_a_grey_picture_as_the_colour_one_does(tmp_path: Path) -> None:
    path = write(tmp_path / "weights.pth", published())
    grey, colour = encoder(channels=1).eval(), encoder(channels=3).eval()
    load_weights(grey, path)
    load_weights(colour, path)
    x = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(grey(x), colour(x.expand(-1, 3, -1, -1)))


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    state = published()
    del state["layer2.1.conv2.weight"]
    path = write(tmp_path / "weights.pth", state)
    with pytest.raises(ConfigError, match=r"weights\.pth.*layer2\.1\.conv2\.weight"):
        load_weights(encoder(), path)


def test_other_shapes_are_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    target = encoder(width=8)
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(ConfigError, match=r"conv1\.weight is \(4, 3, 7, 7\).*\(8, 3, 7, 7\)"):
        load_weights(target, write(tmp_path / "weights.pth", published()))
    assert all(torch.equal(t, before[name]) for name, t in target.state_dict().items())


class Malicious:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_code_in_a_weights_file_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    torch.save({**published(), "extra": Malicious(trace)}, tmp_path / "weights.pth")
    with pytest.raises(ConfigError, match=r"weights\.pth"):
        load_weights(encoder(), tmp_path / "weights.pth")
    assert not trace.exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights", b"\x80\x02]q\x00."])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=path.name):
        load_weights(encoder(), path)


def test_a_missing_file_and_a_lone_tensor_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such"):
        load_weights(encoder(), tmp_path / "absent.pth")
    torch.save(torch.zeros(3), tmp_path / "tensor.pth")
    with pytest.raises(ConfigError, match="state dict"):
        load_weights(encoder(), tmp_path / "tensor.pth")
