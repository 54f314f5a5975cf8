"""Online decoding: from the samples of an amplifier to decisions."""

from gbwatt.online.decoder import Decision, OnlineDecoder
from gbwatt.online.evidence import Evidence

__all__ = ["Decision", "Evidence", "OnlineDecoder"]
