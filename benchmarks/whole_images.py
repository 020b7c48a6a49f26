"""Time and memory of a training step on a whole image: IPS beside lightstream and a plain CNN.

    pip install --no-deps lightstream    # not used by ips; its core needs no torchvision
    python benchmarks/whole_images.py --sides 2048 4096

All arms have the ResNet-18 of ips and read the same tiled TIFF. lightstream computes the exact
gradients of the whole image, tile by tile, with frozen BatchNorm; the plain CNN computes the same
with all activations in memory. IPS scores every patch and learns from M of them. The arms take
turns in one process; the memory of each is that of its first step, in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
import torch
from torch import Tensor, nn
from turns import compare

from ips.images import open_image
from ips.models import IPSNet
from ips.nn import CrossAttentionTransformer, Head, resnet18
from ips.patches import open_patches

ARMS = ("ips", "lightstream", "cnn")
Loss = Callable[[], Tensor]
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def build(
    name: str, *, path: Path, width: int, patch: int, keep: int, tile: int
) -> tuple[nn.Module, Loss]:
    torch.manual_seed(0)
    if name == "ips":
        return ips_arm(path, width, patch, keep)
    return streamed_arm(path, width, tile) if name == "lightstream" else plain_arm(path, width)


def ips_arm(path: Path, width: int, patch: int, keep: int) -> tuple[nn.Module, Loss]:
    aggregator = CrossAttentionTransformer(8 * width, tokens=1)
    heads = {"class": Head(8 * width, 1, activation="sigmoid")}
    encoder = resnet18(channels=3, width=width)
    net = IPSNet(encoder, aggregator, heads, keep=keep, chunk=keep)

    def loss() -> Tensor:
        with open_patches(path, patch_size=patch) as image:
            return bce(net.forward_train([image], load="lazy", seed=0).logits["class"])

    return net, loss


def plain_arm(path: Path, width: int) -> tuple[nn.Module, Loss]:
    body, head = backbone(width), nn.Linear(8 * width, 1)
    mean, std = (torch.tensor(values)[:, None, None] for values in (_MEAN, _STD))

    def loss() -> Tensor:
        image = (read(path).float() / 255 - mean) / std  # (1, 3, h, w)
        return bce(head(body(image).mean(dim=(2, 3))))

    return nn.ModuleList([body, head]), loss


def streamed_arm(path: Path, width: int, tile: int) -> tuple[nn.Module, Loss]:
    warnings.filterwarnings("ignore", message="CUDA is not available")
    from lightstream.core.constructor import StreamingConstructor

    network, head = backbone(width), nn.Linear(8 * width, 1)
    constructor = StreamingConstructor(network, tile, verbose=False)
    # True, the only value it accepts without a GPU, would move the network to a GPU afterwards.
    constructor.statistics_on_cpu = False
    with contextlib.redirect_stdout(io.StringIO()):
        body = constructor.prepare_streaming_model().eval()

    def loss() -> Tensor:
        image = read(path)  # (1, 3, h, w) bytes; it normalises tile by tile
        output = body(image).requires_grad_()  # (1, D, h / 32, w / 32)
        value = bce(head(output.mean(dim=(2, 3))))
        value.backward()
        body.backward(image, output.grad)
        return value.detach().requires_grad_()  # its gradients are computed already

    return nn.ModuleList([body, head]), loss


def difference(path: Path, width: int, tile: int) -> float:
    """Greatest difference of a gradient of lightstream from the plain CNN, relative to its norm."""
    gradients = []
    for name in ("lightstream", "cnn"):
        net, loss = build(name, path=path, width=width, patch=0, keep=0, tile=tile)
        loss().backward()
        gradients.append([p.grad for p in net.parameters() if p.grad is not None])
    pairs = list(zip(*gradients, strict=True))
    assert all(one.shape == other.shape for one, other in pairs)
    return max(float((one - other).norm() / other.norm()) for one, other in pairs)


def backbone(width: int) -> nn.Sequential:
    """ResNet-18 without pooling; its BatchNorm is frozen, as lightstream needs it."""
    net = resnet18(channels=3, width=width)
    stages = [getattr(net, name) for name in net.stages]
    body = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, *stages).eval()
    for module in body.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False)
    return body


def read(path: Path) -> Tensor:
    with open_image(path) as image:
        pixels = image.read_region((0, 0), 0, image.dimensions)
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]


def bce(logits: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.ones(1, 1))


def write_image(path: Path, side: int) -> None:
    """Write random pixels, so that no two patches are the same."""
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    tifffile.imwrite(path, pixels, tile=(256, 256), photometric="rgb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sides", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--patch", type=int, default=128, help="patch size of IPS")
    parser.add_argument("--keep", type=int, default=64, help="M and I of IPS")
    parser.add_argument("--tile", type=int, default=1792, help="tile size of lightstream")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="compare gradients, and stop")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--limit-gb", type=float, default=8.0, help="memory limit of a process")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        with tempfile.TemporaryDirectory() as folder:
            write_image(path := Path(folder) / "image.tif", args.sides[0])
            print(f"greatest difference: {difference(path, args.width, args.tile):.1e}")
        return
    print("| side, px | model | wall clock, s | processor time, s | peak memory, MB |")
    print("| ---: | --- | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for side in args.sides:
            path = Path(folder) / f"{side}.tif"
            write_image(path, side)
            arm = partial(
                build,
                path=path,
                width=args.width,
                patch=args.patch,
                keep=args.keep,
                tile=args.tile,
            )
            costs = compare(args.arms, arm, rounds=args.steps, limit=args.limit_gb * 1e9)
            for name, cost in costs.items():
                cells = f"more than {args.limit_gb:g} GB | | "
                if cost is not None:
                    cells = f"{cost.wall:.1f} | {cost.busy:.1f} | {cost.memory / 1e6:,.0f}"
                print(f"| {side:,} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
