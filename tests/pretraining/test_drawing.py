from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch import Tensor, nn

from ips.errors import DataError, ImageError, PatchError
from ips.pretraining import patches as drawing
from ips.pretraining.neighbours import draw_neighbours, find_neighbours
from ips.pretraining.patches import Reader, Slide, collect, draw, find_files, is_blank
from ips.slides.coords import Resolution, slide_patches

OPEN = partial(slide_patches, resolution=Resolution(8))


def picture(path: Path, *, side: int = 32, blank_rows: int = 0, grey: bool = False) -> Path:
    """Noise, the uppermost rows white."""
    random = np.random.default_rng(len(path.stem))
    pixels = random.integers(0, 256, (side, side) if grey else (side, side, 3), dtype=np.uint8)
    pixels[:blank_rows] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def places(path: Path, coords: object, **notes: int) -> None:
    with h5py.File(path, "w") as file:
        file["coords"] = np.array(coords, dtype=np.int64)
        file["coords"].attrs.update(notes)


def reader(paths: list[Path], *, per_slide: int = 100, skip_blank: bool = True) -> Reader:
    found = collect(paths, OPEN)
    draws = draw(found.slides, per_slide=per_slide, seed=0, epoch=0)
    return Reader(found, draws, seed=0, skip_blank=skip_blank)


class TestFiles:
    def test_files_folders_and_tables(self, tmp_path: Path) -> None:
        one, two = picture(tmp_path / "a/one.png"), picture(tmp_path / "a/two.png")
        three = picture(tmp_path / "three.png")
        (tmp_path / "a/notes.txt").write_text("not a slide")
        picture(tmp_path / "a/thumbnails/one.png")
        table = tmp_path / "table.csv"
        table.write_text("path,split\na/one.png,train\na/two.png,test\n")
        assert find_files([tmp_path / "a"]) == [one, two]
        assert find_files([three, tmp_path / "a"]) == [three, one, two]
        assert find_files([one, one]) == [one]
        assert find_files([table]) == [one]

    def test_mistakes(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no image or slide in this folder"):
            find_files([tmp_path])
        picture(tmp_path / "x.png")
        table = tmp_path / "table.csv"
        table.write_text("path,split\nx.png,test\n")
        with pytest.raises(DataError, match="no row has 'train'"):
            find_files([table])
        (tmp_path / "bad.png").write_bytes(b"no picture")
        with pytest.raises(ImageError, match=r"bad\.png"):
            collect([tmp_path / "bad.png"], OPEN)

    def test_grey_beside_colour_becomes_rgb(self, tmp_path: Path) -> None:
        files = [picture(tmp_path / "grey.png", grey=True), picture(tmp_path / "colour.png")]
        found = reader(files)
        assert found.collection.channels == 3
        patches = found.read(range(len(found)))
        grey = torch.from_numpy(found.draws[:, 0] == 0)
        assert patches.shape[1:] == (3, 8, 8)
        assert (patches[grey][:, 0] == patches[grey][:, 2]).all()
        assert (patches[~grey][:, 0] != patches[~grey][:, 2]).any()

    def test_bands_are_refused_unless_three_are_chosen(self, tmp_path: Path) -> None:
        path = tmp_path / "bands.npy"
        np.save(path, np.zeros((32, 32, 5), np.uint8))
        with pytest.raises(DataError, match=r"bands\.npy has 5 channels, .* --channels rgb"):
            collect([path], OPEN)
        assert collect([path], partial(OPEN, channels="rgb")).channels == 3

    def test_unreadable_files_are_skipped_on_request(self, tmp_path: Path) -> None:
        good, broken = picture(tmp_path / "good.png"), picture(tmp_path / "broken.png")
        broken.write_bytes(broken.read_bytes()[:200])  # its header is whole
        (tmp_path / "bad.png").write_bytes(b"no picture")
        files = [tmp_path / "none.png", broken, good, tmp_path / "bad.png"]
        found = collect(files, OPEN, skip_errors=True)
        assert [slide.path for slide in found.slides] == [good]
        for name, text in zip(("none", "broken", "bad"), found.skipped, strict=True):
            assert f"{name}.png" in text
        with pytest.raises(DataError, match=r"none of 1 slides .* can be read, such as .*bad\.png"):
            collect(files[3:], OPEN, skip_errors=True)
        places(tmp_path / "bad.h5", [[0, 0]])
        opener = partial(OPEN, coords=tmp_path)
        with pytest.raises(PatchError, match=r"no good\.h5"):
            collect([good], opener)
        with pytest.raises(DataError, match=r"none of 1 slides .*no good\.h5"):
            collect([good], opener, skip_errors=True)

    def test_places_of_patches_of_two_sizes(self, tmp_path: Path) -> None:
        files = [picture(tmp_path / "one.png"), picture(tmp_path / "two.png")]
        opener = partial(slide_patches, resolution=Resolution(), coords=tmp_path)
        for stem in ("one", "two"):
            places(tmp_path / f"{stem}.h5", [[0, 0]], patch_size=8, patch_level=0)
        assert collect(files, opener).patch_size == 8
        places(tmp_path / "two.h5", [[0, 0]], patch_size=16, patch_level=0)
        with pytest.raises(DataError, match=r"one\.png have 8 px, .*two\.png have 16"):
            collect(files, opener)


SLIDES = [Slide(Path(f"{n}.svs"), count, 2**26) for n, count in enumerate((5, 300, 2000))]


class TestDraw:
    def test_different_patches_of_every_slide(self) -> None:
        draws = draw(SLIDES, per_slide=100, seed=0, epoch=0)
        assert np.bincount(draws[:, 0]).tolist() == [5, 100, 100]
        assert len(np.unique(draws, axis=0)) == 205
        assert all(patch < SLIDES[slide].count for slide, patch in draws)
        assert len(np.unique(draws[:20, 0])) > 1  # not slide after slide

    def test_the_epoch_and_the_seed_decide(self) -> None:
        again = [
            draw(SLIDES, per_slide=100, seed=seed, epoch=epoch)
            for seed, epoch in ((0, 1), (0, 1), (0, 2), (1, 1))
        ]
        assert np.array_equal(again[0], again[1])
        assert not np.array_equal(again[0], again[2])
        assert not np.array_equal(again[0], again[3])

    def test_few_slides_are_needed_at_a_time(self) -> None:
        slides = [Slide(Path(f"{n}.svs"), 50, 2**26) for n in range(40)]  # 2.5 GiB in all
        draws = draw(slides, per_slide=10, seed=0, epoch=0)
        assert sorted(np.bincount(draws[:, 0])) == [10] * 40
        first, last = ([*draws[:, 0]].index(n) for n in range(40)), draws[::-1, 0].tolist()
        spans = [(start, len(draws) - last.index(n)) for n, start in enumerate(first)]
        together = max(sum(a <= t < b for a, b in spans) for t in range(len(draws)))
        assert 10 <= together <= 17


class TestReader:
    def test_reads_what_was_drawn(self, tmp_path: Path) -> None:
        read = reader([picture(tmp_path / f"{'x' * n}.png") for n in (1, 2)])
        batch = read.read(range(len(read)))
        assert batch.shape == (32, 3, 8, 8)
        assert batch.dtype == torch.uint8
        for pixels, (slide, patch) in zip(batch, read.draws, strict=True):
            assert torch.equal(pixels, OPEN(read.collection.slides[slide].path).read([patch])[0])

    def test_blank_patches_are_replaced(self, tmp_path: Path) -> None:
        path = picture(tmp_path / "x.png", blank_rows=16)
        read, as_it_is = reader([path]), reader([path], skip_blank=False)
        assert is_blank(as_it_is.read(range(16))).sum() == 8
        before = read.read(range(16))
        assert not is_blank(before).any()
        assert torch.equal(before, read.read(range(16)))  # and the same at every reading
        assert torch.equal(before, reader([path]).read(range(16)))
        empty = reader([picture(tmp_path / "empty.png", blank_rows=32)])
        assert is_blank(empty.read([0])).all()

    def test_blank_is_one_colour_but_for_noise(self) -> None:
        noise = torch.randint(-3, 4, (3, 32, 32))
        flat = torch.tensor([240, 230, 235])[:, None, None].expand(3, 32, 32)
        edge = flat.clone()
        edge[:, :, :4] -= 60
        assert is_blank(torch.stack([flat, flat + noise, edge])).tolist() == [True, True, False]

    def test_few_files_are_open(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        paths = [picture(tmp_path / f"{'x' * n}.png") for n in range(1, 7)]
        read = reader(paths)
        monkeypatch.setattr(drawing, "OPEN_BYTES", 3 * 32 * 32 * 3)
        for number in range(len(read)):
            read.read([number])
            assert len(read._open) <= 3
        read.close()
        assert not read._open

    def test_a_copy_in_a_worker_opens_its_own(self, tmp_path: Path) -> None:
        read = reader([picture(tmp_path / "x.png")])
        before = read.read([0])
        assert torch.equal(pickle.loads(pickle.dumps(read)).read([0]), before)

    def test_a_damaged_file_is_named(self, tmp_path: Path) -> None:
        read = reader([picture(tmp_path / "x.png")])
        (tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:200])
        with pytest.raises(ImageError, match=r"x\.png"):
            read.read([0])

    def test_unreadable_patches_are_replaced_on_request(self, tmp_path: Path) -> None:
        path = tmp_path / "x.tif"
        pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        tifffile.imwrite(path, pixels, photometric="rgb", tile=(16, 16))
        path.write_bytes(path.read_bytes()[: -5 * 16 * 16 * 3])  # the last five of 16 tiles
        for skip_blank in (True, False):
            strict = reader([path], skip_blank=skip_blank)
            with pytest.raises(ImageError, match=r"x\.tif"):
                strict.read(range(64))
            lenient = replace(strict.collection, skip_errors=True)
            read = Reader(lenient, strict.draws.copy(), seed=0, skip_blank=skip_blank)
            batch = read.read(range(64))
            assert (read.draws[:, 1] != strict.draws[:, 1]).sum() == 5 * 4
            for patch, (_, number) in zip(batch, read.draws, strict=True):
                assert torch.equal(patch, OPEN(path).read([number])[0])
        path.write_bytes(path.read_bytes()[:1000])  # none is left
        with pytest.raises(ImageError, match=r"x\.tif"):
            Reader(lenient, read.draws, seed=0, skip_blank=False).read([0])

    def test_only_where_there_is_tissue(self, tmp_path: Path) -> None:
        paths = [picture(tmp_path / name, blank_rows=16) for name in ("one.png", "two.png")]
        (tmp_path / "places").mkdir()
        places(tmp_path / "places/one.h5", [[3, 5], [24, 24], [0, 0]])
        places(tmp_path / "places/two.h5", np.zeros((0, 2)))
        opener = partial(OPEN, coords=tmp_path / "places")
        found = collect(paths, opener)
        assert [slide.path for slide in found.slides] == [paths[0]]
        assert found.slides[0].count == 3
        assert ["two.png" in text for text in found.skipped] == [True]
        draws = np.array([[0, 0], [0, 1], [0, 2]])
        batch = Reader(found, draws, seed=0, skip_blank=False).read([0, 1, 2])
        pixels = torch.from_numpy(np.array(Image.open(paths[0]))).permute(2, 0, 1)
        assert torch.equal(batch[0], pixels[:, 5:13, 3:11])
        assert torch.equal(batch[1], pixels[:, 24:32, 24:32])
        with pytest.raises(DataError, match="none of 1 slides has tissue"):
            collect(paths[1:], opener)


class Colours(nn.Module):
    """An encoder whose features are the mean colours."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x.mean(dim=(2, 3)) - 0.5)


class TestNeighbours:
    def test_the_most_similar_of_all(self, tmp_path: Path) -> None:
        read = reader([picture(tmp_path / f"{'x' * n}.png", side=96) for n in (1, 2)])
        found = find_neighbours(Colours(), read, queries=3, nearest=4)
        features = torch.nn.functional.normalize(
            Colours()(read.read(range(len(read))).float() / 255).detach(), dim=1
        )
        cosines = features @ features.T
        cosines.fill_diagonal_(-2)
        best = cosines[found.queries].topk(4, dim=1)
        assert torch.allclose(found.similarity, best.values, atol=1e-5)
        assert torch.equal(found.nearest, best.indices)

    def test_a_patch_is_shown_once(self, tmp_path: Path) -> None:
        """Half of the patches are blank, and others are read in their place."""
        read = reader([picture(tmp_path / "x.png", blank_rows=16)])
        found = find_neighbours(Colours(), read, queries=4, nearest=20)
        assert found.nearest.shape == (4, 7)  # of eight that are not blank
        assert torch.isfinite(found.similarity).all()
        for asked, nearest in zip(found.queries, found.nearest, strict=True):
            shown = [tuple(read.draws[int(n)]) for n in (asked, *nearest)]
            assert len(set(shown)) == 8

    @pytest.mark.parametrize("grey", [False, True])
    def test_the_picture(self, tmp_path: Path, grey: bool) -> None:
        read = reader([picture(tmp_path / "a $slide$ of a very long name.png", grey=grey)])
        target = tmp_path / "figures/neighbours.png"
        draw_neighbours(target, find_neighbours(Colours(), read, queries=2), read)
        with Image.open(target) as drawn:
            assert min(drawn.size) > 300
        assert [file.name for file in target.parent.iterdir()] == ["neighbours.png"]
