"""One line about results that hold arrays: nobody wants to read a hundred thousand numbers at a prompt."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

_FEW = 8  # entries that are written out


class Summarised:
    """A dataclass that shows the shapes of its arrays; give it ``repr=False``."""

    def __repr__(self) -> str:
        shown = (f"{field.name}={_shown(getattr(self, field.name))}" for field in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        few = value.ndim == 1 and value.size <= _FEW
        return f"[{', '.join(f'{x:.4g}' for x in value)}]" if few else f"array {value.shape}"
    if isinstance(value, tuple):
        return f"({', '.join(map(repr, value[:_FEW]))}{', …' if len(value) > _FEW else ''})"
    text = repr(value)
    return f"{type(value).__name__}(…)" if isinstance(value, Summarised) or "\n" in text else text
