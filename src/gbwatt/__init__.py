"""gbwatt: Riemannian self-attention for EEG under the generalised Bures-Wasserstein metric."""

__version__ = "0.1.0"
