"""Trials in ``.npz`` files, written by this package or by ``numpy.savez``."""

from __future__ import annotations

import difflib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gbwatt._io import write_atomically
from gbwatt.data._reading import (
    error_text,
    expect_finite,
    expect_plausible_size,
    expect_shape,
    in_words,
    require_file,
    size_text,
)
from gbwatt.data.formats.interchange import numbered, provenance, to_record
from gbwatt.data.trials import Trials
from gbwatt.errors import DataError, MismatchError, MissingFileError

Array = NDArray[Any]

#: Arrays that are fields of trials, and all known arrays; "record" is the provenance as JSON.
_ARRAYS = ("X", "y", "class_names", "ch_names", "sfreq", "tmin", "unit", "subject", "session", "run", "group")
_KNOWN = (*_ARRAYS, "record")
#: Functions that read shape and dtype of an array, by the version of the array format.
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
#: What error messages name as the expected content.
_FORM = "an .npz file with X (n, n_chans, n_times), y (n,) and sfreq"


def write_npz(trials: Trials, file: str | Path) -> None:
    """Write trials, with all metadata, to a file for :func:`read_npz`; the file is replaced atomically.

    Parameters
    ----------
    trials : Trials
    file : path
        In a folder that exists.
    """
    file = Path(file).expanduser()
    if not file.parent.is_dir():
        raise MissingFileError(f"the folder {file.parent} does not exist; create it to write {file.name}.")
    arrays: dict[str, Any] = {name: np.asarray(getattr(trials, name)) for name in _ARRAYS}
    content = io.BytesIO()
    np.savez(content, record=np.array(json.dumps(to_record(trials))), **arrays)
    write_atomically(file, content.getvalue())


#: Name of the class of all trials in a file that is read without labels.
UNLABELLED = "unlabelled"


def read_npz(file: str | Path, *, labelled: bool = True) -> Trials:
    """Read trials from a file of :func:`write_npz` or of ``numpy.savez``.

    Parameters
    ----------
    file : path
        File with the arrays ``X`` (n, n_chans, n_times), ``y`` (n,) and ``sfreq`` in Hz.  Optional arrays are
        ``ch_names``, ``class_names``, ``tmin``, ``unit`` (default: "µV"), ``subject``, ``session``, ``run`` and
        ``group``.  ``y`` contains class names, or indices into ``class_names``; without ``class_names``, whole numbers
        become the names.
    labelled : bool
        Whether ``y`` is required.  If it is not, and the file has none, all trials have the class "unlabelled".

    Returns
    -------
    Trials

    Raises
    ------
    MissingFileError
        If the file does not exist.
    DataError
        If it is damaged, or an array is missing or has a wrong shape.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", X=np.zeros((4, 2, 50)), y=["left", "right"] * 2, sfreq=100)
    ...     read_npz(f"{folder}/mine.npz").class_names
    ('left', 'right')
    """
    file = Path(file).expanduser()
    content = _read_trial_arrays(file, labelled)
    expect_shape(file, "X", content["X"], (None, None, None))
    ch_names = _channel_names(file, content)
    try:
        expect_finite(file, content["X"], ch_names)
        return Trials(**{**_other_fields(content), **_class_fields(content), "X": content["X"], "ch_names": ch_names})
    except DataError:
        raise
    except Exception as error:  # any kind is possible if the record is damaged
        raise DataError(file, f"arrays that cannot be converted to trials: {error_text(error)}", _FORM) from error


def _read_trial_arrays(file: Path, labelled: bool) -> dict[str, Array]:
    """Read the arrays that :func:`read_npz` uses; raise an error if the file is damaged or lacks one of them."""
    with _open_checked_archive(file, _KNOWN, _FORM) as archive:
        _expect_no_misspelling(file, archive.files)
        _expect_required_arrays(file, archive.files, labelled)
        return {name: archive[name] for name in archive.files if name in _KNOWN}


def read_arrays(file: Path, *names: str) -> dict[str, Array]:
    """Read arrays of an ``.npz`` file by name, for data sets that have another layout than :func:`read_npz`.

    Parameters
    ----------
    file : path
    *names : str
        Arrays, which are all required.

    Returns
    -------
    dict of array
    """
    with _open_checked_archive(file, names, f"an .npz file with {', '.join(names)}") as archive:
        missing = [name for name in names if name not in archive.files]
        if missing:
            raise DataError(file, f"the arrays {', '.join(archive.files) or 'none'}", f"also {', '.join(missing)}")
        return {name: archive[name] for name in names}


@contextmanager
def _open_checked_archive(file: Path, names: Sequence[str], expected: str) -> Iterator[Any]:
    """Context manager that opens an ``.npz`` file and checks the arrays in ``names`` before any is loaded.

    Any error about its content becomes a :class:`DataError`; ``expected`` is what the file should be.
    """
    require_file(file, folders=True)
    try:
        with file.open("rb") as stream:  # NumPy does not close files that it cannot read
            _expect_sound_archive(file, stream, names)
            archive = np.load(stream, allow_pickle=False)
            if isinstance(archive, np.ndarray):  # an .npy file
                raise ValueError("one array without a name")
            yield archive
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise any kind of error
        raise DataError(
            file, f"{size_text(file)} that NumPy cannot read ({error})", expected, _remedy_for_error(error)
        ) from error


def _expect_sound_archive(file: Path, stream: BinaryIO, names: Sequence[str]) -> None:
    """Raise an error if the archive is damaged or expands beyond reason, before memory is allocated.

    The size of each array in ``names`` must follow from its shape and dtype, and their sum must be in proportion to the
    file.  ``stream`` is the open file, which is at its start afterwards.
    """
    if not zipfile.is_zipfile(stream):
        stream.seek(0)
        return  # NumPy explains what it is
    with zipfile.ZipFile(stream) as archive:
        not_arrays = [member.filename for member in archive.infolist() if not member.filename.endswith(".npy")]
        if not_arrays:
            raise DataError(file, f"{not_arrays[0]!r} in the archive", "only arrays, whose names end in .npy")
        members = [member for member in archive.infolist() if member.filename.removesuffix(".npy") in names]
        expect_plausible_size(file, sum(member.file_size for member in members))
        for member in members:
            _expect_array_size(file, archive, member)
    stream.seek(0)


def _expect_array_size(file: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise an error unless shape and dtype of an array agree with its size in the archive."""
    with archive.open(member) as content:
        version = np.lib.format.read_magic(content)
        if version not in _HEADER_READERS:
            raise DataError(
                file, f"{member.filename} in version {version} of the array format", "version (1, 0) or (2, 0)"
            )
        shape, _, dtype = _HEADER_READERS[version](content)
        n_bytes = math.prod(shape) * dtype.itemsize
        if not dtype.hasobject and n_bytes != member.file_size - content.tell():
            raise DataError(
                file,
                f"{member.filename} of {in_words(n_bytes)} by its shape {shape}, dtype {dtype}",
                f"{in_words(member.file_size - content.tell())}, its size in the archive",
                "Copy or write it again.",
            )


def _remedy_for_error(error: Exception) -> str:
    """Return what the user can do about an error of NumPy."""
    if "pickle" in str(error).lower():
        return "Save arrays of objects as numbers or text: np.array(labels, dtype=str)."
    return "Copy or write it again."


def _expect_no_misspelling(file: Path, names: list[str]) -> None:
    """Raise an error for an unknown array whose name resembles a known one that is missing."""
    for name in names:
        close = difflib.get_close_matches(name.lower(), [n.lower() for n in _KNOWN if len(n) > 1], n=1, cutoff=0.75)
        if name not in _KNOWN and close and close[0] not in names:
            raise DataError(file, f"an array {name!r}", f"{close[0]!r}, if that is meant", "Rename it.")


def _expect_required_arrays(file: Path, names: list[str], labelled: bool) -> None:
    """Raise an error if an array is missing: X, y or sfreq, or any array in a file of :func:`write_npz`.

    Without ``labelled``, y may be missing.
    """
    needed: Sequence[str] = _ARRAYS if "record" in names else ("X", "y", "sfreq")  # files of write_npz have all
    needed = needed if labelled else tuple(name for name in needed if name != "y")
    missing = [name for name in needed if name not in names]
    if missing:
        remedy = "Add the missing arrays: np.savez(file, X=X, y=y, sfreq=250.0)."
        raise DataError(file, f"the arrays {', '.join(names) or 'none'}", f"also {', '.join(missing)}", remedy)


def _channel_names(file: Path, content: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the channel names in the file, or EEG1, EEG2, … if it has none."""
    n_chans = content["X"].shape[1]
    if "ch_names" not in content:
        return tuple(f"EEG{number}" for number in range(1, n_chans + 1))
    expect_shape(file, "ch_names", content["ch_names"], (n_chans,))
    return tuple(content["ch_names"].astype(str).tolist())


def _other_fields(content: Mapping[str, Array]) -> dict[str, Any]:
    """Return the fields of trials in the file other than samples, channels and classes."""
    fields: dict[str, Any] = {name: content[name] for name in ("subject", "session", "run", "group") if name in content}
    fields |= {name: content[name].item() for name in ("sfreq", "tmin", "unit") if name in content}
    return {**fields, **(provenance(json.loads(str(content["record"].item()))) if "record" in content else {})}


def _class_fields(content: Mapping[str, Array]) -> dict[str, Any]:
    """Return the fields ``class_names`` and ``y`` of trials.

    ``y`` in the file contains class names, indices into ``class_names``, or other whole numbers, which become names.
    """
    if "y" not in content:
        return {"class_names": (UNLABELLED,), "y": np.zeros(len(content["X"]), dtype=int)}
    y = content["y"].ravel() if content["y"].shape[1:] == (1,) else content["y"]
    names = tuple(content["class_names"].astype(str).tolist()) if "class_names" in content else None
    if y.dtype.kind == "f":  # as in MATLAB
        y = _to_integers(y)
    if y.dtype.kind in "iu" and names is None:
        values, codes = np.unique(y, return_inverse=True)  # sorted as numbers, not as text
        return {"class_names": tuple(map(str, values.tolist())), "y": codes}
    names, codes = (names, y) if y.dtype.kind in "iu" and names is not None else numbered(y, names)
    return {"class_names": names, "y": codes}


def _to_integers(y: Array) -> Array:
    """Return labels in floating point as integers; raise an error for fractions."""
    fractions = y[y != np.round(y)]
    if fractions.size:
        raise MismatchError(f"'y' contains {fractions[0]}; classes are whole numbers or names.")
    return y.astype(np.int64)
