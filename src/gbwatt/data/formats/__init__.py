"""Readers of general formats: files that MNE reads, arrays in .npz files, and data sets of MOABB."""
