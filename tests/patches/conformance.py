"""Conformance tests of every patch source.

A test class inherits from ``PatchSourceConformance`` and gives two fixtures: ``source``, and
``expected``, all of its patches as one tensor.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.errors import PatchError
from ips.patches import PatchSource


class PatchSourceConformance:
    def test_it_is_a_patch_source(self, source: PatchSource) -> None:
        assert isinstance(source, PatchSource)
        assert source.name

    def test_its_length_coordinates_and_shape_agree(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        assert len(source) == len(expected)
        assert source.shape == tuple(expected.shape[1:])
        assert source.coords.shape == (len(source), 2)
        assert source.coords.dtype == np.int64
        assert source.extent is None or source.extent > 0

    def test_all_patches_are_read_in_their_order(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        patches = source.read(range(len(source)))
        assert patches.dtype == expected.dtype
        assert torch.equal(patches, expected)

    def test_pixels_are_bytes_and_features_are_floats(self, source: PatchSource) -> None:
        patches = source.read([0])
        assert patches.dtype == torch.uint8 if patches.dim() == 4 else patches.is_floating_point()

    def test_requested_patches_come_in_the_requested_order(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        last = len(source) - 1
        for indices in ([last], [last, 0], [0, last, 0, 0], list(range(last, -1, -2))):
            assert torch.equal(source.read(indices), expected[indices])

    def test_indices_may_be_a_list_an_array_a_tensor_or_a_range(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        for indices in ([1, 0], np.array([1, 0]), torch.tensor([1, 0]), range(1, -1, -1)):
            assert torch.equal(source.read(indices), expected[[1, 0]])

    def test_reading_nothing_gives_nothing(self, source: PatchSource) -> None:
        assert source.read([]).shape == (0, *source.shape)

    def test_an_index_out_of_range_is_named(self, source: PatchSource) -> None:
        for wrong in (len(source), -1):
            with pytest.raises(PatchError, match=f"no patch {wrong}"):
                source.read([0, wrong])

    def test_patches_that_were_read_can_be_modified(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        source.read([0, 1]).zero_()
        assert torch.equal(source.read([0, 1]), expected[:2])

    def test_it_can_be_pickled_before_and_after_a_read(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        for _ in range(2):
            copy = pickle.loads(pickle.dumps(source))
            assert (copy.name, len(copy), copy.extent) == (source.name, len(source), source.extent)
            assert np.array_equal(copy.coords, source.coords)
            assert torch.equal(copy.read([1]), expected[[1]])
            assert [(p.area, p.size, p.step) for p in copy.parts] == [
                (p.area, p.size, p.step) for p in source.parts
            ]
            source.read([0])

    def test_it_can_be_closed_and_read_again(self, source: PatchSource, expected: Tensor) -> None:
        for _ in range(2):
            source.close()
            assert torch.equal(source.read([1, 0]), expected[[1, 0]])

    def test_a_with_block_closes_it(
        self, source: PatchSource, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed: list[bool] = []
        monkeypatch.setattr(type(source), "close", lambda self: closed.append(True))
        with source as entered:
            assert entered is source
            assert not closed
        assert closed == [True]

    def test_patches_in_memory_are_one_tensor(self, source: PatchSource, expected: Tensor) -> None:
        assert source.patches is None or torch.equal(source.patches, expected)

    def test_its_parts_cover_every_patch_once(self, source: PatchSource) -> None:
        indices = [i for part in source.parts for i in range(len(source))[part.patches]]
        assert indices == list(range(len(source)))

    def test_patches_of_a_part_lie_in_its_area(self, source: PatchSource) -> None:
        for part in source.parts:
            corners = source.coords[part.patches]
            left, top, width, height = part.area
            assert (corners >= (left, top)).all()
            assert (corners + part.patch_side <= (left + width, top + height)).all()
            if part.size is not None:
                assert left >= 0
                assert top >= 0
                assert left + width <= part.size[0]
                assert top + height <= part.size[1]

    def test_a_part_knows_the_size_and_distance_of_its_patches(self, source: PatchSource) -> None:
        alone = len(source.parts) == 1
        for part in source.parts:
            assert not alone or part.name == source.name
            assert part.extent == source.extent or not (alone or source.extent)
            assert part.patch_side == (part.extent or part.patch_side) > 0
            assert part.step > 0
            assert part.mpp is None or min(part.mpp) > 0

    def test_each_part_is_a_source_of_its_own(self, source: PatchSource, expected: Tensor) -> None:
        for part, alone in zip(source.parts, source.by_part(), strict=True):
            assert torch.equal(alone.read(range(len(alone))), expected[part.patches])
            assert np.array_equal(alone.coords, source.coords[part.patches])
            (same,) = alone.parts
            assert (same.title, same.area, same.extent) == (part.title, part.area, part.extent)
            assert (alone.name, alone.extent) == (part.title, part.extent)

    def test_a_thumbnail_shows_the_area(self, source: PatchSource) -> None:
        for part in source.parts:
            view = part.thumbnail(30)
            height, width, channels = view.pixels.shape
            assert channels == 3
            assert max(height, width) <= 30
            start = (source.coords[part.patches] - view.offset) * view.scale
            stop = start + part.patch_side * view.scale
            assert (start > -1).all()
            assert (stop < (width + 1, height + 1)).all()

    def test_patches_known_to_be_blank_have_one_colour(
        self, source: PatchSource, expected: Tensor
    ) -> None:
        known = source.known_blank
        assert known.shape == (len(source),)
        assert all(len(patch.unique()) == 1 for patch in expected[torch.from_numpy(known)])

    def test_threads_may_read_at_the_same_time(self, source: PatchSource, expected: Tensor) -> None:
        with ThreadPoolExecutor(4) as pool:
            read = pool.map(source.read, [[i] for i in range(len(source))] * 3)
            assert torch.equal(torch.cat(list(read)), expected.repeat(3, *[1] * len(source.shape)))
