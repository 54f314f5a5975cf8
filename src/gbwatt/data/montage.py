"""Names and positions of electrodes."""

from __future__ import annotations


def montage_name() -> str:
    """What the MNE-Python that is installed calls the 10-05 montage on the Colin 27 head."""
    import mne

    return "colin27_1005" if "colin27_1005" in mne.channels.get_builtin_montages() else "standard_1005"


def electrode_name(label: str) -> str:
    """Name of an electrode without the dots and spaces that some files fill it up with.

    Its capitals are left as they are: they do not matter where positions are looked up.

    Examples
    --------
    >>> [electrode_name(label) for label in ("Fc5.", "C3..", "Oz ", "T10")]
    ['Fc5', 'C3', 'Oz', 'T10']
    """
    return label.rstrip(". ")


# fmt: off
#: Electrodes against a common reference, in the order in which LaBraM's authors take them.
REFERENTIAL = (
    "FP1", "FP2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "F7", "F8",
    "T3", "T4", "T5", "T6", "A1", "A2", "FZ", "CZ", "PZ", "T1", "T2",
)
#: Pairs of electrodes whose differences BIOT takes: four chains from front to back.
BIPOLAR = (
    "FP1-F7", "F7-T3", "T3-T5", "T5-O1", "FP2-F8", "F8-T4", "T4-T6", "T6-O2",
    "FP1-F3", "F3-C3", "C3-P3", "P3-O1", "FP2-F4", "F4-C4", "C4-P4", "P4-O2",
)
# fmt: on

#: Ends of labels that name a common reference, not a second electrode.
REFERENCES = ("REF", "LE", "AR", "AVG")

#: Names of the 10-10 system for electrodes that clinical recordings call by their older names.
OLDER = {"T7": "T3", "T8": "T4", "P7": "T5", "P8": "T6"}


def plain_name(label: str) -> str:
    """A channel's name without what recording systems add.

    Examples
    --------
    >>> plain_name("EEG Fp1-REF"), plain_name("F7 - T7")
    ('FP1', 'F7-T7')
    """
    text = label.upper().replace(" ", "").removeprefix("EEG")
    for reference in REFERENCES:
        text = text.removesuffix(f"-{reference}")
    return text


def older_name(name: str) -> str:
    """An electrode, or a pair, by the older names.

    Examples
    --------
    >>> older_name("F7-T7")
    'F7-T3'
    """
    return "-".join(OLDER.get(part, part) for part in name.split("-"))
