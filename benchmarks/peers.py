"""Time and memory of a training step on one bag of features: IPS beside the models of torchmil.

    pip install --no-deps torchmil tensordict torch_geometric einops pandas orjson pyvers \
        cloudpickle importlib_metadata zipp python-dateutil six    # none of them is used by ips
    python benchmarks/peers.py --patches 10000 50000 250000

A step reads the features of a bag from the same HDF5 file, predicts, computes gradients and updates
the weights. The models take turns in one process, and the table has the least time of several
steps; the memory of each is that of its first step, in a process of its own.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from turns import compare

from ips.models import IPSNet
from ips.nn import CrossAttentionTransformer, FeatureProjector, Head
from ips.patches import FeatureWriter, open_features

ARMS = ("ips", "abmil", "clam", "transmil")
_KEEP = 100  # M
Loss = Callable[[], Tensor]


def build(name: str, *, path: Path, features: int, dim: int) -> tuple[torch.nn.Module, Loss]:
    torch.manual_seed(0)
    if name == "ips":
        return ips_arm(path, features, dim)
    return peer_arm(name, path, features, dim)


def ips_arm(path: Path, features: int, dim: int) -> tuple[torch.nn.Module, Loss]:
    aggregator = CrossAttentionTransformer(dim, tokens=1)
    heads = {"class": Head(dim, 1, activation="sigmoid")}
    net = IPSNet(FeatureProjector(features, dim=dim), aggregator, heads, keep=_KEEP, chunk=_KEEP)

    def loss() -> Tensor:
        with open_features(path) as bag:
            logits = net.forward_train([bag], load="lazy", seed=0).logits["class"]
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.ones(1, 1))

    return net, loss


def peer_arm(name: str, path: Path, features: int, dim: int) -> tuple[torch.nn.Module, Loss]:
    from torchmil.models import ABMIL, CLAM_SB, TransMIL

    models = {"abmil": ABMIL, "clam": CLAM_SB, "transmil": TransMIL}
    extra = {} if name == "transmil" else {"gated": True}
    net = models[name](in_shape=(features,), att_dim=dim, **extra)

    def loss() -> Tensor:
        with open_features(path) as bag:
            x = torch.as_tensor(bag.read(range(len(bag)))).float()[None]  # (1, N, D)
        _, losses = net.compute_loss(torch.ones(1), x)
        return torch.stack([loss.sum() for loss in losses.values()]).sum()

    return net, loss


def write_bag(path: Path, patches: int, features: int) -> None:
    """Write normally distributed features of a slide."""
    random = torch.Generator().manual_seed(0)
    with FeatureWriter(path, patch_size=256, extent=256) as writer:
        for first in range(0, patches, 10_000):
            count = min(10_000, patches - first)
            rows = torch.randn(count, features, generator=random)
            number = torch.arange(first, first + count)
            writer.append(rows, (256 * torch.stack([number % 500, number // 500], 1)).numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--patches", type=int, nargs="+", default=[10_000, 50_000, 250_000])
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--dim", type=int, default=128, help="units of attention, and D of IPS")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    parser.add_argument("--limit-gb", type=float, default=6.0, help="memory limit of a process")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| patches | model | wall clock, s | processor time, s | peak memory, MB |")
    print("| ---: | --- | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for patches in args.patches:
            path = Path(folder) / f"{patches}.h5"
            write_bag(path, patches, args.features)
            arm = partial(build, path=path, features=args.features, dim=args.dim)
            costs = compare(args.arms, arm, rounds=args.steps, limit=args.limit_gb * 1e9)
            for name, cost in costs.items():
                cells = f"more than {args.limit_gb:g} GB | | "
                if cost is not None:
                    cells = f"{cost.wall:.2f} | {cost.busy:.2f} | {cost.memory / 1e6:,.0f}"
                print(f"| {patches:,} | {name} | {cells} |", flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
