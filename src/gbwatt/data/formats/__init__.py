"""Recordings in general formats: whatever MNE reads, arrays in .npz files, data sets of MOABB."""
