"""Ways in which files are really damaged."""

from __future__ import annotations

from pathlib import Path

FIXED = 256
RESERVED, N_RECORDS, RECORD_SECONDS = 192, 236, 244
#: Where a field of the signals begins, and how long it is.
UNIT, PHYSICAL_MAX, DIGITAL_MAX = (96, 8), (112, 8), (128, 8)


def patch(file: Path, at: int, text: str, length: int) -> None:
    """Overwrite a field of an EDF header."""
    content = bytearray(file.read_bytes())
    content[at : at + length] = text.encode().ljust(length)
    file.write_bytes(content)


def patch_signal(file: Path, field: tuple[int, int], text: str, place: int = 0) -> None:
    """Overwrite a field of one signal."""
    n_signals = int(file.read_bytes()[252:256])
    start, length = field
    patch(file, FIXED + start * n_signals + place * length, text, length)


def truncate(file: Path, share: float = 0.5) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: round(share * len(content))])


def flip(file: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
