"""Every patch of a slide through an encoder, once and for all, into one HDF5 file a slide.

The paper crops the middle 224 x 224 px of a patch, takes the 2,048 features of a ResNet-50,
normalizes and stores them (Appendix D.6). Ours are normalized to length 1, which the note of the
encoder in a file says.

Which patches go through the encoder together depends on their numbers alone, so a slide's features
are the same whatever was interrupted, and whoever makes them.
Letters: n patches, C channels, D features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import ConfigError, ImageError, IPSError, PatchError
from ips.models.checks import memory_format
from ips.nn import evaluating
from ips.nn.embedding import SelectionEncoder, micro_batch
from ips.patches import Coords, FeatureWriter, ImagePatches, open_features, prefetch
from ips.slides.coords import NoTissueError
from ips.slides.sharing import Claim, ClaimLostError, SharedFolder, SlideState

CROP = 224
"""Side of the middle of a patch that the encoder sees; the paper's."""

Normalise = Literal["l2", "none"]
Dtype = Literal["float16", "float32"]
Watch = Callable[[str, int, int], None]
"""Called with the name of a slide, the number of its patches done and of all of them."""


class FeatureExtractor:
    """Turns patches into the features that are stored.

    Args:
        encoder: from ``(n, C, h, w)`` to ``(n, D)``, on the device where it is to run.
        name: what to call it in the files.
        channels: C; one of grey slides is repeated for an encoder of colours.
        mean, std: of the pixels between 0 and 1 that it was trained on, per channel or one for all.
        crop: side of the middle of a patch that it sees; of a smaller patch, or with None, all.
        normalise: ``l2`` for features of length 1, ``none`` for what the encoder gives.
        dtype: in which features are stored.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        name: str,
        channels: int = 3,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        crop: int | None = CROP,
        normalise: Normalise = "l2",
        dtype: Dtype = "float16",
    ) -> None:
        for what, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                raise ConfigError(
                    f"{what} has {len(values)} values for an encoder of {channels} channels: give "
                    "one for each, or one for all"
                )
        self.encoder, self.channels, self.crop = encoder, channels, crop
        self.normalise, self.dtype = normalise, dtype
        self.device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
        self._mean, self._std = (
            torch.tensor(values, dtype=torch.float32, device=self.device).view(1, -1, 1, 1)
            for values in (mean, std)
        )
        self._format = memory_format(encoder)
        self._fast = SelectionEncoder(self._prepare)
        self._settled = False
        weights = _fingerprint(encoder, [*mean, *std])
        self.label = f"{name} {weights}, crop {crop}, {normalise}, {dtype}"
        """The encoder as the files note it: two runs with the same label give the same features."""

    def write(
        self, source: ImagePatches, path: Path, *, progress: Callable[[int], None] | None = None
    ) -> None:
        """Store the features of all patches of ``source``; the file appears when it is whole."""
        image = source.image
        if image.channels not in (1, self.channels):
            raise PatchError(
                f"{source.name} has {image.channels} channels but the encoder takes "
                f"{self.channels}: take one that was trained on colours"
            )
        writer = FeatureWriter(
            path,
            patch_size=source.patch_size,
            extent=source.extent,
            level=image.get_best_level_for_downsample(source.downsample),
            mpp=None if image.mpp is None else sum(image.mpp) / 2,
            encoder=self.label,
            dtype=self.dtype,
        )
        with evaluating(self.encoder), writer:
            self._settle(source.shape)
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

    def _settle(self, shape: tuple[int, ...]) -> None:
        """Let the fast copy of the encoder prove itself on noise, not on what slide comes first."""
        if not self._settled:
            noise = torch.Generator().manual_seed(0)
            patch = torch.randint(256, (1, *shape), generator=noise).to(torch.uint8)
            try:
                self._fast.begin(self.encoder)(self._cropped(patch.to(self.device)))
            except (IPSError, torch.cuda.OutOfMemoryError):
                raise
            except Exception as error:  # encoders of others raise anything
                _, h, w = self._cropped_shape(shape)
                reason = str(error).partition("\n")[0] or type(error).__name__
                raise ConfigError(
                    f"{self.label}: the encoder cannot take patches of {w} x {h} px ({reason}): "
                    "give the size that it was made for as --crop, with a --patch-size of at least "
                    "that"
                ) from error
            self._settled = True

    def _cropped(self, patches: Tensor) -> Tensor:
        """The middle of patches ``(n, C, h, w)``."""
        _, h, w = self._cropped_shape(patches.shape[1:])
        top, left = (patches.shape[2] - h) // 2, (patches.shape[3] - w) // 2
        return patches[:, :, top : top + h, left : left + w]

    def _cropped_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        channels, *sides = shape
        return channels, *(side if self.crop is None else min(side, self.crop) for side in sides)

    def _prepare(self, patches: Tensor) -> Tensor:
        """Stored pixels to what the encoder takes; grey ones as equal colours."""
        if patches.shape[1] == 1:
            patches = patches.expand(-1, self.channels, -1, -1)
        x = (patches.to(self._mean.dtype) / 255 - self._mean) / self._std
        return x.contiguous(memory_format=self._format)


def extract_features(
    slides: Mapping[str, Path],
    folder: str | Path,
    *,
    extractor: FeatureExtractor,
    open: Callable[[Path], ImagePatches],
    skip_errors: bool = False,
    watch: Watch | None = None,
) -> list[SlideState]:
    """Store the features of slides, one file each, beside any number of processes that do so too.

    Slides that are done are passed over; so are those that another process is at work on, unless
    that turns out to be no more. What failed in an earlier run is tried again.

    Args:
        slides: by the name of their feature file.
        folder: for the files.
        extractor: makes the features.
        open: makes the patches of a slide.
        skip_errors: go on after a slide that cannot be done. One without tissue never stops the
            others.
        watch: is told how far it is.

    Returns:
        how far each of the slides is in the end.
    """
    shared = SharedFolder(folder)
    _check_same(shared, slides, extractor, open)

    def write(claim: Claim) -> None:
        with open(slides[claim.name]) as source:

            def progress(done: int) -> None:
                claim.beat()
                if watch is not None:
                    watch(claim.name, done, len(source))

            progress(0)
            extractor.write(source, shared.features(claim.name), progress=progress)

    left, before = set(slides), len(slides) + 1
    while len(left) < before:  # until nothing can be taken, also of what others have dropped
        before = len(left)
        for name in [name for name in slides if name in left]:
            claim = shared.take(name)
            if claim is None:
                continue
            left.remove(name)
            with claim:
                error = _attempt(claim, write)
            if error is not None and not skip_errors:
                raise error
    shared.sweep()
    return shared.states(slides)


def _attempt(claim: Claim, write: Callable[[Claim], None]) -> IPSError | None:
    """Do a slide; what is wrong with it is noted in the folder, and returned."""
    try:
        write(claim)
    except ClaimLostError:
        return None
    except NoTissueError as error:
        claim.give_up("empty", str(error))
    except (ImageError, PatchError) as error:
        if not claim.is_mine():  # what we wrote was swept away: it is another's slide now
            return None
        claim.give_up("failed", str(error))
        return error
    return None


def _check_same(
    shared: SharedFolder,
    slides: Mapping[str, Path],
    extractor: FeatureExtractor,
    open: Callable[[Path], ImagePatches],
) -> None:
    """What is in the folder was made as the rest is going to be; one slide speaks for all."""
    name = next((name for name in slides if shared.features(name).exists()), None)
    if name is None:
        return
    try:
        bag = open_features(shared.features(name))
    except PatchError as error:
        raise ConfigError(f"{error}, after deleting it") from error
    made = bag.attributes
    coords: Coords | None = None
    now: dict[str, object] = {"encoder": extractor.label}
    try:
        with open(slides[name]) as source:
            now |= {"patch_size": source.patch_size, "patch_size_level0": source.extent}
            coords = source.coords
    except NoTissueError:
        coords = np.empty((0, 2), np.int64)
    except IPSError:  # the slide is no longer there: what was made of it stays
        pass
    for what, value in now.items():
        if made.get(what) != value:
            raise ConfigError(
                f"{shared.features(name)} was made with {what}={made.get(what)}, and now it would "
                f"be {value}: give another folder to write to, or the settings of that one"
            )
    if coords is not None and not np.array_equal(bag.coords, coords):
        raise ConfigError(
            f"{shared.features(name)} holds {len(bag):,} patches, and now there would be "
            f"{len(coords):,} at other places: give another folder to write to, or the settings of "
            "that one"
        )


def _fingerprint(encoder: nn.Module, numbers: Sequence[float]) -> str:
    """Short, and different for other weights."""
    digest = hashlib.sha256(repr(numbers).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:8]
