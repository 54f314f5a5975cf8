"""A writer of BrainVision recordings, as the recorder of that name writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

STEP = 0.1  # µV for each whole number


def write_brainvision(
    header: Path,
    data: np.ndarray,  # (n_chans, n_samples) in µV
    names: Sequence[str],
    sfreq: int,
    markers: Sequence[tuple[str, str, int]],  # type, description, sample number from 0
) -> Path:
    """Header, samples and markers, with a first marker "New Segment", and the rate in a comment of the header too."""
    interval = 1_000_000 // sfreq
    channels = "\n".join(f"Ch{k}={name},,{STEP},µV" for k, name in enumerate(names, start=1))
    header.write_text(
        "Brain Vision Data Exchange Header File Version 1.0\n\n"
        f"[Common Infos]\nCodepage=UTF-8\nDataFile={header.stem}.eeg\nMarkerFile={header.stem}.vmrk\n"
        f"DataFormat=BINARY\nDataOrientation=MULTIPLEXED\nNumberOfChannels={len(names)}\n"
        f"SamplingInterval={interval}\n\n[Binary Infos]\nBinaryFormat=INT_16\n\n[Channel Infos]\n{channels}\n\n"
        f"[Comment]\nA m p l i f i e r  S e t u p\nNumber of channels: {len(names)}\n"
        f"Sampling Rate [Hz]: {sfreq}\nSampling Interval [µS]: {interval}\n",
        encoding="utf-8",
    )
    marks = "\n".join(f"Mk{k}={kind},{text},{place + 1},1,0" for k, (kind, text, place) in enumerate(markers, start=2))
    header.with_suffix(".vmrk").write_text(
        "Brain Vision Data Exchange Marker File, Version 1.0\n\n"
        f"[Common Infos]\nCodepage=UTF-8\nDataFile={header.stem}.eeg\n\n"
        f"[Marker Infos]\nMk1=New Segment,,1,1,0,20200101120000000000\n{marks}\n",
        encoding="utf-8",
    )
    header.with_suffix(".eeg").write_bytes(np.round(data / STEP).T.astype("<i2").tobytes())
    return header
