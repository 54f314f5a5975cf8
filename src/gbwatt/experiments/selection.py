"""What validation trials would choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gbwatt.experiments.tables import Found, Grid, Place


def choices(grid: Grid) -> list[str]:
    """The lines with the highest accuracy in validation, in sentences: of each model, and of all."""
    notes = ["Validation: accuracy on validation trials at the epoch that they chose; test trials choose nothing."]
    for dataset in grid.datasets:
        seeds, means = _compared({place: grid[place] for place in grid if place.dataset == dataset})
        if not means:
            continue
        best = {place.label: place for place in sorted(means, key=lambda place: means[place])}
        first = max(means, key=lambda place: means[place])
        notes.append(f"The highest in validation on {dataset}{_of(seeds)}: {_named(first, means)}.")
        if len(best) < len(means):
            each = "; ".join(_named(best[label], means) for label in dict.fromkeys(place.label for place in means))
            notes.append(f"The highest of each model: {each}.")
    return notes


def _compared(places: Mapping[Place, Found]) -> tuple[set[int], dict[Place, float]]:
    """Seeds that all subjects have in every line that is complete for any seed, and the lines' means over these."""
    subjects = {row.run["subject"] for found in places.values() for row in found.done}
    complete = {place: _seeds(found, subjects) for place, found in places.items()}
    complete = {place: seeds for place, seeds in complete.items() if seeds}
    common = set.intersection(*complete.values()) if complete else set()
    return common, {place: _mean(places[place], common) for place in complete if common}


def _seeds(found: Found, subjects: set[int]) -> set[int]:
    """Seeds with which every subject was done and validated."""
    known = {(row.run["seed"], row.run["subject"]) for row in found.done if row.valid_accuracy is not None}
    return {seed for seed, _ in known if all((seed, subject) in known for subject in subjects)}


def _mean(found: Found, seeds: set[int]) -> float:
    return float(np.mean([row.valid_accuracy for row in found.done if row.run["seed"] in seeds]))


def _of(seeds: set[int]) -> str:
    return f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))})"


def _named(place: Place, means: Mapping[Place, float]) -> str:
    return f"{', '.join(filter(None, place[:2]))}, {100 * means[place]:.2f} %"
