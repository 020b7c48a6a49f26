"""Feature extraction: embed every patch of a slide once and store the result, one HDF5 file each.

The paper crops the central 224 x 224 px of a patch, takes the 2,048 features of a ResNet-50,
normalizes and stores them (Appendix D.6). We scale them to length 1 by default.

Patches are grouped into batches by index only. The features of a slide are therefore the same
after any interruption and in any process.
Letters: n patches, C channels, D features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

from ips.devices import pick_device
from ips.errors import ConfigError, ImageError, IPSError, PatchError
from ips.locks import lock_folder
from ips.nn import encoders, evaluating
from ips.nn.embedding import SelectionEncoder, micro_batch
from ips.patches import FeatureWriter, FileLayout, ImagePatches, open_features, prefetch
from ips.patches.coords_file import NoTissueError
from ips.slides.coords import Resolution
from ips.slides.listing import OUT
from ips.slides.states import FeatureFolder, SlideState
from ips.work import Place, Report, run

CROP = 224
"""Side of the centre crop of a patch, as in the paper."""

Normalise = Literal["l2", "none"]
Dtype = Literal["float16", "float32"]
SlideOpener = Callable[[Path], ImagePatches]


class FeatureExtractor:
    """Turns patches into features and stores them.

    Args:
        encoder: network from ``(n, C, h, w)`` to ``(n, D)``, on the device where it runs.
        name: name of the encoder in the feature files.
        channels: C; grey slides are expanded to C channels.
        mean, std: mean and standard deviation of pixels between 0 and 1, per channel or one for
            all channels.
        resize: side to which patches are scaled before the crop; None leaves them as they are.
        crop: side of the centre crop; smaller patches, or all with None, are used whole.
        normalise: ``l2`` scales features to length 1, ``none`` keeps the encoder's output.
        dtype: type of the stored features.
        resolution: patch size and resolution that the encoder was trained on, if known.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        name: str,
        channels: int = 3,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        resize: int | None = None,
        crop: int | None = CROP,
        normalise: Normalise = "l2",
        dtype: Dtype = "float16",
        resolution: Resolution | None = None,
    ) -> None:
        for key, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                raise ConfigError(
                    f"{key} has {len(values)} values for an encoder of {channels} channels: give "
                    "one for each, or one for all"
                )
        self.encoder, self.channels, self.resize, self.crop = encoder, channels, resize, crop
        self.normalise, self.dtype = normalise, dtype
        self.resolution = resolution or Resolution()
        layout = encoders.fastest_memory_format(encoder)
        self._pixels = encoders.Normalise(mean, std, memory_format=layout)
        self._use(next((p.device for p in encoder.parameters()), torch.device("cpu")))
        weights = _fingerprint(encoder, [*mean, *std])
        scaled = "" if resize is None else f"resize {resize}, "
        self.label = f"{name} {weights}, {scaled}crop {crop}, {normalise}, {dtype}"
        """Description in the feature files; equal labels mean equal features."""

    def _use(self, device: torch.device) -> None:
        self.device = device
        self.encoder.to(device)
        self._pixels.to(device)
        self._fast = SelectionEncoder(self._prepare)
        self._warm = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickled without its device: another process uses its own."""
        networks = {key: deepcopy(getattr(self, key)).cpu() for key in ("encoder", "_pixels")}
        state = {key: value for key, value in vars(self).items() if key not in ("_fast", "device")}
        return state | networks

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._use(pick_device())

    def write(
        self,
        source: ImagePatches,
        path: Path,
        *,
        slide: Path | None = None,
        layout: FileLayout = "ips",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Store the features of all patches of ``source`` at ``path``, atomically.

        Args:
            source: patches of a slide.
            path: feature file.
            slide: file of the slide, which the feature file names.
            layout: see `ips.patches.FeatureWriter`.
            progress: callback that receives the number of patches done.
        """
        image = source.image
        if image.channels not in (1, self.channels):
            raise PatchError(
                f"{source.name} has {image.channels} channels but the encoder takes "
                f"{self.channels}: use an encoder that was trained on colour images"
            )
        writer = FeatureWriter(
            path,
            patch_size=source.patch_size,
            extent=source.extent,
            level=image.get_best_level_for_downsample(source.downsample),
            mpp=None if image.mpp is None else sum(image.mpp) / 2,
            magnification=image.magnification,
            size=image.dimensions,
            slide=slide,
            encoder=self.label,
            dtype=self.dtype,
            layout=layout,
        )
        with evaluating(self.encoder), writer:
            self._warm_up(source.shape)
            embed = self._fast.begin(self.encoder)
            size = micro_batch(self._cropped_shape(source.shape), self.device)
            for indices, patches in prefetch(source, size=size, device=self.device):
                x = embed(self._cropped(patches))  # (n, D)
                if x.dim() != 2:
                    raise ConfigError(
                        f"{self.label}: the encoder gives {tuple(x.shape)} for {len(patches)} "
                        "patches, expected one row of features for each"
                    )
                rows = F.normalize(x.float(), dim=1) if self.normalise == "l2" else x
                writer.append(rows, source.coords[indices.numpy()])
                if progress is not None:
                    progress(writer.count)

    def _warm_up(self, shape: tuple[int, ...]) -> None:
        """Let the fast encoder check itself on noise, so that no slide influences the outcome."""
        if self._warm:
            return
        generator = torch.Generator().manual_seed(0)
        noise = torch.randint(256, (1, *shape), generator=generator).to(torch.uint8)
        try:
            self._fast.begin(self.encoder)(self._cropped(noise.to(self.device)))
        except (IPSError, torch.cuda.OutOfMemoryError):
            raise
        except Exception as error:  # third-party encoders raise any type
            _, h, w = self._cropped_shape(shape)
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ConfigError(
                f"{self.label}: the encoder cannot take patches of {w} x {h} px ({reason}): give "
                "its input size as --crop, with a --patch-size of at least that"
            ) from error
        self._warm = True

    def _cropped(self, patches: Tensor) -> Tensor:
        """Patches ``(n, C, h, w)`` scaled to ``resize``, and of these the centre crop."""
        if self.resize is not None and patches.shape[2:] != (self.resize, self.resize):
            size = self.resize, self.resize
            scaled = F.interpolate(patches.float(), size, mode="bilinear", antialias=True)
            patches = scaled.round().clamp(0, 255).to(torch.uint8)
        _, h, w = self._cropped_shape(patches.shape[1:])
        top, left = (patches.shape[2] - h) // 2, (patches.shape[3] - w) // 2
        return patches[:, :, top : top + h, left : left + w]

    def _cropped_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        channels, *sides = shape
        sides = [self.resize or side for side in sides]
        return channels, *(side if self.crop is None else min(side, self.crop) for side in sides)

    def _prepare(self, patches: Tensor) -> Tensor:
        """Standardize pixels for the encoder; a grey channel is expanded."""
        if patches.shape[1] == 1:
            patches = patches.expand(-1, self.channels, -1, -1)
        x: Tensor = self._pixels(patches)
        return x


@dataclass(frozen=True)
class _SlideFeatures:
    """Stores the features of one slide: the work of `extract_features`, in any process."""

    folder: FeatureFolder
    extractor: FeatureExtractor
    open_slide: SlideOpener
    layout: FileLayout

    def __call__(self, slide: tuple[str, Path], report: Report) -> str | None:
        """Why the slide has no features; None if they are stored."""
        name, path = slide
        try:
            with self.open_slide(path) as source:
                total = len(source)
                report(0, total)
                self.extractor.write(
                    source,
                    self.folder.features(name),
                    slide=path,
                    layout=self.layout,
                    progress=lambda done: report(done, total),
                )
        except NoTissueError as error:
            return str(error)
        return None


def extract_features(
    slides: Mapping[str, Path],
    folder: str | Path,
    *,
    extractor: FeatureExtractor,
    open_slide: SlideOpener,
    layout: FileLayout = "ips",
    skip_errors: bool = False,
    place: Place | None = None,
    console: Console | None = None,
) -> list[SlideState]:
    """Store the features of slides; those that are finished are skipped.

    Slides that failed in an earlier run are tried again. A folder belongs to one process at a time,
    or to one process for each share.

    Args:
        slides: files by the name of the feature file.
        folder: output folder.
        extractor: computes the features.
        open_slide: opens the patches of a slide.
        layout: of the feature files, see `ips.patches.FeatureWriter`.
        skip_errors: continue after a slide that fails. A slide without tissue is never an error.
        place: where to work, and on which share of the slides; see `ips.work.Place`.
        console: console for the progress bar.

    Returns:
        States of the slides of this share.
    """
    place, files = place or Place(), FeatureFolder(folder)
    share = place.share(slides)
    with lock_folder(files.folder, option=OUT, shard=place.shard):
        _check_settings(files, slides, extractor, open_slide)
        files.remove_leftovers(share)
        done = files.done()
        todo = {name: (name, path) for name, path in share.items() if name not in done}
        work = _SlideFeatures(files, extractor, open_slide, layout)
        try:
            for name, result in run(
                work,
                todo,
                place=place,
                catch=(ImageError, PatchError),
                gpu=True,
                console=console,
                done=len(share) - len(todo),
            ):
                if not isinstance(result, IPSError):
                    files.record(name, None if result is None else "empty", result or "")
                    continue
                files.record(name, "failed", str(result))
                if not skip_errors:
                    raise result
        finally:
            files.remove_leftovers(share)
    return files.states(share)


def _check_settings(
    shared: FeatureFolder,
    slides: Mapping[str, Path],
    extractor: FeatureExtractor,
    open_slide: SlideOpener,
) -> None:
    """Check that the folder was made with the same settings, by the first finished slide."""
    done = shared.done()
    name = next((name for name in slides if name in done), None)
    if name is None:
        return
    file = shared.features(name)
    try:
        bag = open_features(file)
    except PatchError as error:
        raise ConfigError(f"{error}, after deleting it") from error
    coords = bag.coords
    settings: dict[str, object] = {"encoder": extractor.label}
    try:
        with open_slide(slides[name]) as source:
            settings |= {"patch_size": source.patch_size, "patch_size_level0": source.extent}
            coords = source.coords
    except NoTissueError:
        coords = np.empty((0, 2), np.int64)
    except IPSError:  # the slide is gone: keep its features
        pass
    remedy = "give another output folder, or the same settings"
    for key, value in settings.items():
        if bag.attributes.get(key) != value:
            raise ConfigError(
                f"{file} was made with {key}={bag.attributes.get(key)}, but this run has {value}: "
                f"{remedy}"
            )
    if not np.array_equal(bag.coords, coords):
        raise ConfigError(
            f"{file} holds {len(bag):,} patches, but this run has {len(coords):,} at other "
            f"coordinates: {remedy}"
        )


def _fingerprint(encoder: nn.Module, numbers: Sequence[float]) -> str:
    """Short hash of the weights and ``numbers``."""
    digest = hashlib.sha256(repr(numbers).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:8]
