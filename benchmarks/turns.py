"""Steps of training of several networks, each in a process of its own, by turns.

As when a network is trained: what another one did to the memory of a process changes how long its own takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType

import torch
from contestants import Batch, contestant
from threadpoolctl import threadpool_limits

STREAK = 3  # steps in a row: the first finds cold caches
REST = 0.02  # seconds between turns, in which threads of the last one fall asleep


class Racer:
    """A network in a process of its own, which takes a step when it is told to."""

    def __init__(self, name: str, preset: str, batch: Batch, threads: int) -> None:
        context = get_context("spawn")
        self.name, (self._pipe, theirs) = name, context.Pipe()
        arrays = (batch[0].numpy(), batch[1].numpy())
        self._process = context.Process(target=_serve, args=(theirs, name, preset, arrays, threads), daemon=True)
        self._process.start()
        theirs.close()

    def ready(self) -> str | None:
        """Wait until it is; why it never will be, if it cannot be built."""
        answer: str | None = self._pipe.recv()
        return answer

    def seconds(self, steps: int) -> float:
        """The shortest of some steps in a row."""
        time.sleep(REST)
        self._pipe.send(steps)
        duration: float = self._pipe.recv()
        return duration

    def __enter__(self) -> Racer:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Connection, name: str, preset: str, arrays: tuple[object, object], threads: int) -> None:
    torch.set_num_threads(threads)
    batch = torch.as_tensor(arrays[0]), torch.as_tensor(arrays[1])
    with threadpool_limits(threads):
        try:
            runner = contestant(name, preset, batch)
        except ImportError as error:
            pipe.send(str(error).partition(",")[0])
            return
        runner.step((batch[0][:4], batch[1][:4]))
        pipe.send(None)
        while True:
            try:
                steps = pipe.recv()
            except EOFError:  # the race is over
                return
            pipe.send(min(runner.seconds(batch) for _ in range(steps)))


def shortest(racers: Iterable[Racer], rounds: int, budget: float) -> dict[str, float]:
    """Shortest steps; the networks take turns, those beyond the budget twice only, a step each."""
    racers = list(racers)
    best = {racer.name: racer.seconds(1) for racer in racers}
    for number in range(rounds):
        for racer in racers:
            slow = best[racer.name] > budget
            if number == 0 or not slow:
                best[racer.name] = min(best[racer.name], racer.seconds(1 if slow else STREAK))
    return best
