"""Where the electrodes of the 10-05 system are."""

from __future__ import annotations


def montage_name() -> str:
    """What the MNE-Python that is installed calls the 10-05 montage on the Colin 27 head."""
    import mne

    return "colin27_1005" if "colin27_1005" in mne.channels.get_builtin_montages() else "standard_1005"
