"""Reading groups of running requests, from a thread or from an event loop."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any


def read(group: Any) -> Iterator[tuple[int, Any]]:
    """(index of the stream, its next piece) until all have ended; leaving early cancels the rest."""
    try:
        while (item := group.next()) is not None:
            yield item
    finally:
        group.cancel_all()


async def _readable(fd: int) -> None:
    """Returns when ``fd`` is readable. It is watched only meanwhile, so that a slow reader costs nothing."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await woken
    finally:
        loop.remove_reader(fd)


async def read_async(group: Any) -> AsyncIterator[tuple[int, Any]]:
    """As read(), without blocking the event loop."""
    fd = group.fileno()
    try:
        while True:
            item = group.next(0)
            if item is not None:
                yield item
                await asyncio.sleep(0)  # others have their turn even when there is always something to read
            elif group.num_open == 0:
                return
            else:
                await _readable(fd)
    finally:
        group.cancel_all()
