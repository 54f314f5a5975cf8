"""The data sets, a module each: readers of their files, and the entry for the catalogue at the end."""
