"""The subjects or sessions that a decoder knows, with the alignment of each."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from gbwatt._io import plain
from gbwatt._validation import check_one_of
from gbwatt.data.trials import in_order
from gbwatt.decoding.alignment import ALIGNMENTS, DOMAINS, Alignment, domain_names, require_enough
from gbwatt.decoding.inputs import Array, Examples, Sets
from gbwatt.errors import ParameterError


@dataclass
class Domains:
    """Names of domains, by number, and their alignment.

    Attributes
    ----------
    by : "subject" or "session"
        What a domain of Trials and epochs is; see :func:`~gbwatt.decoding.alignment.domain_names`.
    alignment : Alignment or None
        Fitted to every domain.
    names : list
        None is the name of the domain of arrays without groups.
    """

    by: str = "subject"
    alignment: Alignment | None = None
    names: list[Any] = field(default_factory=list)

    @classmethod
    def make(cls, kind: str | None, by: str) -> Self:
        """No domains yet, with an alignment of a kind in :data:`~gbwatt.decoding.alignment.ALIGNMENTS`, or none."""
        alignment = None if kind is None else ALIGNMENTS[kind](by=by)
        if alignment is not None:
            alignment.whiteners_ = {}
        return cls(by, alignment)

    def copy(self) -> Self:
        """A copy, to which domains can be added."""
        copied = type(self).make(None, self.by)
        copied.names, copied.alignment = list(self.names), self.alignment
        if self.alignment is not None:
            copied.alignment = type(self.alignment)(by=self.by)
            copied.alignment.whiteners_ = dict(self.alignment.whiteners_)
        return copied

    def with_subjects(self, numbers: Mapping[int, int | None]) -> Self:
        """A copy with other names for the domains of the training subjects.

        Parameters
        ----------
        numbers : mapping of int to int or None
            For subjects of other trials, the subject of the training that they are; None for new ones.
        """
        others = {known: number for number, known in reversed(list(numbers.items())) if known is not None}
        copied = self.copy()
        renamed = {name: _with_subject(name, others, self.by) for name in self.names}
        copied.names = list(renamed.values())
        if copied.alignment is not None:
            whiteners = copied.alignment.whiteners_
            copied.alignment.whiteners_ = {renamed.get(name, name): whiteners[name] for name in whiteners}
        return copied

    def names_of(self, X: Any, groups: Any = None) -> Array:
        """Domain of each trial (n,)."""
        return domain_names(X, groups, self.by)

    def unknown(self, names: Array) -> Array:
        """Mask (n,) of the trials of unknown domains."""
        return np.array([name not in self.names for name in names.tolist()])

    def numbers(self, names: Array) -> Tensor:
        """Number of each trial's domain (n,); all must be known."""
        number = {name: number for number, name in enumerate(self.names)}
        return torch.tensor([number[name] for name in names.tolist()], dtype=torch.long)

    def add(self, x: Array, names: Array, *, few: bool = False) -> None:
        """Add the domains of trials, or fit them anew; unless ``few`` are allowed, enough trials are required."""
        for name in in_order(names):
            rows = names == name
            if not few:
                require_enough(x[rows], name)
            if self.alignment is not None:
                self.alignment.whiteners_[name] = self.alignment.whitener(x[rows], name)
            if name not in self.names:
                self.names.append(name)

    def require_trained(self, sets: Sets) -> None:
        """Raise ParameterError if validation trials are of domains without training trials."""
        if sets.valid is None or sets.valid.domain is None or sets.train.domain is None:
            return
        missing = sets.valid.domain[~torch.isin(sets.valid.domain, sets.train.domain)]
        if len(missing):
            raise ParameterError(
                f"validation has trials of {self.names[int(missing[0])]!r}, but there are no training trials of this "
                "domain, from which domain_norm could estimate its statistics; choose other validation trials."
            )

    def align(self, x: Array, names: Array) -> Array:
        """Align trials of known domains; without alignment, they are returned unchanged."""
        aligned: Array = x if self.alignment is None else self.alignment.transform(x, names)
        return aligned

    def align_examples(self, examples: Examples) -> Examples:
        """Align examples, which have the numbers of their domains."""
        assert examples.domain is not None  # callers check this
        names = np.array(self.names, dtype=object)[examples.domain.numpy()]
        aligned = torch.from_numpy(self.align(examples.x.numpy(), names))
        return Examples(aligned, examples.y, examples.domain, examples.weight)

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON, with the whitening matrices in Base64."""
        values: dict[str, Any] = {"by": self.by, "names": [plain(name) for name in self.names]}
        if self.alignment is not None:
            matrices = np.stack([self.alignment.whiteners_[name] for name in self.names])
            values["whiteners"] = base64.b64encode(matrices.astype("<f8").tobytes()).decode()
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None, kind: str | None, n_chans: int) -> Self | None:
        """Restore from the result of :meth:`to_dict`, with an alignment of a kind, or none.

        None for models without domains.  Raises ValueError or TypeError for values that it cannot have written.
        """
        if values is None:
            return None
        check_one_of("by", values["by"], DOMAINS)
        domains, names = cls.make(kind, values["by"]), values["names"]
        if not isinstance(names, list) or any(type(name) not in (str, int, float, bool, type(None)) for name in names):
            raise TypeError("names of domains of a wrong type")
        if not names or len(set(names)) < len(names):
            raise ValueError("no domains, or two of the same name")
        domains.names = names
        if domains.alignment is not None:
            content = base64.b64decode(values["whiteners"], validate=True)
            matrices = np.frombuffer(content, dtype="<f8").reshape(len(names), n_chans, n_chans)
            if not np.isfinite(matrices).all():
                raise ValueError("the alignment is not finite")
            domains.alignment.whiteners_ = dict(zip(names, matrices.astype(np.float64), strict=True))
        return domains


def _with_subject(name: Any, numbers: Mapping[int, int], by: str) -> Any:
    """Name of a domain after its subject got another number, or none: then other trials are not of this domain."""
    subject, slash, session = str(name).partition("/") if by == "session" else (str(name), "", "")
    known = {str(number): other for number, other in numbers.items()}
    if subject not in known:
        return f"training {name}"
    return f"{known[subject]}/{session}" if slash else known[subject]
