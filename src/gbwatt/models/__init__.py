"""Models of epochs (batch, n_chans, n_times), by class or by name."""

from gbwatt.models import braindecode as braindecode  # registers its models
from gbwatt.models import classical as classical  # registers its models
from gbwatt.models.convnets import MBEEGSE, TCNetFusion
from gbwatt.models.ensemble import Ensemble
from gbwatt.models.gbwatt import Details, GBWAtt
from gbwatt.models.manifold_nets import GDLNet, SPDNet
from gbwatt.models.registry import create, entry, list_models

__all__ = [
    "MBEEGSE",
    "Details",
    "Ensemble",
    "GBWAtt",
    "GDLNet",
    "SPDNet",
    "TCNetFusion",
    "create",
    "entry",
    "list_models",
]
