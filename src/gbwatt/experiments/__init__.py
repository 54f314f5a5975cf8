"""Experiments: what is run, on one machine or many, what came out, and the tables made of it."""
