"""The core works without the optional packages, and what needs one names the command."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from ips.errors import _EXTRAS, MissingPackageError, require


def run_without(packages: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh process in which ``packages`` cannot be imported."""
    block = f"import sys; sys.modules |= dict.fromkeys({packages!r})\n"
    program = block + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_the_core_trains_without_any_optional_package() -> None:
    done = run_without(
        list(_EXTRAS),
        """
        import numpy as np, torch, ips

        net = ips.IPSNet(
            ips.nn.resnet18(stages=1, width=8, channels=3),
            ips.nn.CrossAttentionTransformer(8, tokens=1, heads=2),
            {"grade": ips.nn.Head(8, 2, activation="softmax")},
            keep=4,
            chunk=4,
        )
        source = ips.open_patches(np.zeros((64, 64, 3), np.uint8), patch_size=16)
        chosen = net.select([source], load="lazy", seed=0)
        loss = net(chosen.patches, chosen.selection).logits["grade"].sum()
        loss.backward()
        print(tuple(chosen.patches.shape))
        """,
    )
    assert done.stdout.strip() == "(1, 4, 3, 16, 16)", done.stderr


@pytest.mark.parametrize(
    ("missing", "code", "extra"),
    [
        ("lightning", "import ips; ips.load", "train"),
        ("kornia", "import ips.pretraining", "train"),
        ("fastapi", "import ips.viewer", "viewer"),
        (
            "openslide",
            "import ips; open('a.svs', 'wb').write(b'II*\\0'); ips.open_image('a.svs')",
            "slides",
        ),
        ("typer", "from ips.cli import main", "train"),
        ("ray", "from ips.work import Place; Place.parse(ray='local')", "ray"),
        ("fsspec", "import ips; ips.open_image('s3://bucket/a.svs')", "remote"),
    ],
)
def test_a_missing_package_is_named_with_the_command(
    missing: str, code: str, extra: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("work")
    done = run_without([missing], f"import os; os.chdir({str(folder)!r})\n{code}")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"the package {missing} is not installed" in last
    assert f"pip install 'iterative-patch-selection[{extra}]'" in last


def test_tiff_and_png_open_without_openslide(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("work")
    done = run_without(
        ["openslide"],
        f"""
        import numpy as np, tifffile, ips
        from PIL import Image
        pixels = np.zeros((20, 30, 3), np.uint8)
        tifffile.imwrite("{folder}/a.tif", pixels, tile=(16, 16))
        Image.fromarray(pixels).save("{folder}/a.png")
        for name in ("a.tif", "a.png"):
            print(ips.open_image("{folder}/" + name).dimensions)
        """,
    )
    assert done.stdout.strip() == "(30, 20)\n(30, 20)", done.stderr


def test_require_accepts_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    require("rich", "typer")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPackageError, match=r"iterative-patch-selection\[timm\]"):
        require("timm")
