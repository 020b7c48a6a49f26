"""Time and memory of a training step on one bag of features: IPS beside the models of torchmil.

    pip install --no-deps torchmil tensordict torch_geometric einops pandas orjson pyvers \
        cloudpickle importlib_metadata zipp python-dateutil six    # none of them is used by ips
    python benchmarks/peers.py --patches 10000 50000 250000

Every measurement is a process of its own, and the models take turns. A step reads the features of
a bag from the same HDF5 file, and then predicts, computes gradients and updates the weights. The
table has the least of several steps: seconds of wall clock, seconds of processor time, which other
programs on the machine do not change, and the growth of the peak memory since before the first
step.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ips.bench.peak import peak_memory
from ips.models import IPSNet
from ips.nn import CrossAttentionTransformer, FeatureProjector, Head
from ips.patches import FeatureWriter, open_features

ARMS = ("ips", "abmil", "clam", "transmil")
_KEEP = 100  # M
Step = Callable[[Path], Tensor]


def ips_arm(features: int, dim: int) -> tuple[torch.nn.Module, Step]:
    aggregator = CrossAttentionTransformer(dim, tokens=1)
    heads = {"class": Head(dim, 1, activation="sigmoid")}
    net = IPSNet(FeatureProjector(features, dim=dim), aggregator, heads, keep=_KEEP, chunk=_KEEP)

    def step(path: Path) -> Tensor:
        with open_features(path) as bag:
            logits = net.forward_train([bag], load="lazy", seed=0).logits["class"]
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.ones(1, 1))

    return net, step


def peer_arm(name: str, features: int, dim: int) -> tuple[torch.nn.Module, Step]:
    from torchmil.models import ABMIL, CLAM_SB, TransMIL

    models = {"abmil": ABMIL, "clam": CLAM_SB, "transmil": TransMIL}
    extra = {} if name == "transmil" else {"gated": True}
    net = models[name](in_shape=(features,), att_dim=dim, **extra)

    def step(path: Path) -> Tensor:
        with open_features(path) as bag:
            x = torch.as_tensor(bag.read(range(len(bag)))).float()[None]  # (1, N, D)
        _, losses = net.compute_loss(torch.ones(1), x)
        return torch.stack([loss.sum() for loss in losses.values()]).sum()

    return net, step


def measure(name: str, path: Path, *, features: int, dim: int, steps: int) -> dict[str, float]:
    """The least times of a step, and the growth of the peak memory in MB."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, step = ips_arm(features, dim) if name == "ips" else peer_arm(name, features, dim)
    optimizer = torch.optim.AdamW(net.parameters())
    wall, busy = [], []

    def run() -> None:
        for _ in range(steps):
            start, used = time.perf_counter(), time.process_time()
            optimizer.zero_grad()
            step(path).backward()
            optimizer.step()
            wall.append(time.perf_counter() - start)
            busy.append(time.process_time() - used)

    memory = peak_memory(run).above / 1e6
    return {"wall": min(wall), "busy": min(busy), "memory": memory}


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
    parser.add_argument("--one", nargs=2, metavar=("ARM", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    options = {"features": args.features, "dim": args.dim, "steps": args.steps}
    if args.one is not None:
        limit = int(args.limit_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        print(json.dumps(measure(args.one[0], Path(args.one[1]), **options)))
        return
    print("| patches | model | wall clock, s | processor time, s | peak memory, MB |")
    print("| ---: | --- | ---: | ---: | ---: |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for patches in args.patches:
            path = Path(folder) / f"{patches}.h5"
            write_bag(path, patches, args.features)
            for name in args.arms:
                flags = [f"--{key}={value}" for key, value in options.items()]
                flags.append(f"--limit-gb={args.limit_gb}")
                command = [sys.executable, __file__, *flags, "--one", name, str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                cells = f"| {patches:,} | {name} "
                if done.returncode:
                    last = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
                    memory = "allocate memory" in done.stderr
                    reason = f"more than {args.limit_gb:g} GB" if memory else last
                    print(f"{cells}| {reason} | | |", flush=True)
                    continue
                f = json.loads(done.stdout)
                values = f"{f['wall']:.2f} | {f['busy']:.2f} | {f['memory']:,.0f}"
                print(f"{cells}| {values} |", flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
