"""Where the electrodes of the 10-05 system are."""

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
