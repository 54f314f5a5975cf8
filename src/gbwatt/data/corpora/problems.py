"""Why a recording is left out of a cache: kinds of damage, and what the protocol excludes."""

from __future__ import annotations

#: Every kind, and what it says; the order is that in which they are looked for.
KINDS = {
    "unknown-name": "the file is not named, or not placed, as the corpus has it",
    "subject-in-both": "a training recording of a subject who is also in the evaluation part",
    "duplicate": "the same content as another recording, of which the first in order is kept",
    "unreadable": "the system cannot read the file",
    "not-edf": "the file is empty, or is no EDF file",
    "damaged-header": "the EDF header contradicts itself or the size of the file",
    "discontinuous": "an EDF+ file with gaps",
    "truncated": "the file is shorter than its EDF header says",
    "missing-channel": "an electrode of the montage is missing",
    "wrong-unit": "the samples are in no unit of voltage",
    "wrong-rate": "the sampling rate is too low for the band, or differs among the electrodes",
    "too-short": "the recording is shorter than a window",
    "missing-annotations": "there is no annotation file",
    "empty-annotations": "the annotation file has no events",
    "malformed-annotation": "a line of the annotation file cannot be understood",
    "unknown-label": "an annotation has a label that the corpus does not define",
    "annotation-beyond-end": "an annotated event ends after the recording",
    "flat": "a channel has one value from beginning to end",
    "not-finite": "samples are NaN or infinite",
    "failed": "an error that is not foreseen, or a process that died; tried again by the next call",
    "gone": "the recording was cached once, and is not in the corpus folder any more",
}

#: Left out although nothing is damaged.
NO_DAMAGE = ("subject-in-both", "duplicate", "gone")

#: May be otherwise the next time, though the file has not changed.
TRANSIENT = ("unreadable", "failed")


class Unusable(Exception):
    """A recording cannot be used: one of :data:`KINDS`, and the reason in words."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason
