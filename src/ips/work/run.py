"""Run a function over items, with retries and progress."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import PurePath
from typing import TypeVar

from rich.console import Console

from ips.errors import IPSError
from ips.progress import advance, progress_bar
from ips.work.place import Item, Place

Result = TypeVar("Result")

Report = Callable[[int, int], None]
"""Callback that receives the steps done on an item and its number of steps."""

TRIES = 2
"""How often an item is tried: files on a network may be readable a moment later."""


def run(
    function: Callable[[Item, Report], Result],
    items: Mapping[str, Item],
    *,
    place: Place | None = None,
    catch: tuple[type[IPSError], ...] = (IPSError,),
    gpu: bool = False,
    console: Console | None = None,
    unit: str = "slides",
    done: int = 0,
    transient: bool = False,
) -> Iterator[tuple[str, Result | IPSError]]:
    """Apply ``function`` to every item; yield its name and its result, or its error.

    Results come in the order of the items; on Ray, in the order in which they are ready.

    Args:
        function: receives an item and a callback for progress. On Ray it is pickled once, with what
            it refers to, and every worker gets a copy.
        items: items by name.
        place: where to work; the items are those of its share already, see `Place.share`.
        catch: errors of a single item: it is tried again, and then the error is its result. Others
            are raised.
        gpu: whether the function uses a GPU, if there is one.
        console: console for the progress bar.
        unit: what items are, in the plural.
        done: number of further items that were done before.
        transient: whether the progress bar disappears at the end.
    """
    place = place or Place()
    with progress_bar(console, transient=transient) as bar:
        many = len(items) + done > 1
        total = bar.add_task(unit, total=len(items) + done, completed=done, note="", visible=many)
        if place.ray is None:
            steps = bar.add_task("", total=None, note="", visible=False)

            def here() -> Generator[tuple[str, Result | IPSError]]:
                for name, item in items.items():
                    bar.reset(steps, total=None, description=PurePath(name).name, visible=True)
                    yield name, _attempt(function, item, report, catch)

            def report(done: int, count: int) -> None:
                bar.update(steps, completed=done, total=count)

            results = here()
        else:
            from ips.work.on_ray import run_on_ray

            results = run_on_ray(
                *(function, items),
                place=place,
                catch=catch,
                tries=TRIES,
                gpu=gpu,
                on_start=lambda names: bar.update(total, note=names),
            )
        with closing(results):
            for name, result in results:
                yield name, result
                if many:
                    advance(bar, total)


def _attempt(
    function: Callable[[Item, Report], Result],
    item: Item,
    report: Report,
    catch: tuple[type[IPSError], ...],
) -> Result | IPSError:
    for attempt in range(1, TRIES + 1):
        try:
            return function(item, report)
        except catch as error:
            if attempt == TRIES:
                return error
    raise AssertionError
