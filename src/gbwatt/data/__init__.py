"""EEG recordings: official files, simulated ones with a known truth, preprocessing, and the paper's protocols."""
