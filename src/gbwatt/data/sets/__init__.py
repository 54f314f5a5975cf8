"""Readers of the data sets, one module each, which defines its ``DATASET``."""
