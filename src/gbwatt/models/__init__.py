"""Models of epochs (batch, n_chans, n_times), by class or by name."""

from gbwatt.models import braindecode as braindecode  # registers its models
from gbwatt.models import classical as classical  # registers its models
from gbwatt.models.convnets import MBEEGSE, TCNetFusion
from gbwatt.models.gbwatt import Details, GBWAtt
from gbwatt.models.gdlnet import GDLNet
from gbwatt.models.registry import create, entry, list_models
from gbwatt.models.spdnet import SPDNet

__all__ = [
    "MBEEGSE",
    "Details",
    "GBWAtt",
    "GDLNet",
    "SPDNet",
    "TCNetFusion",
    "create",
    "entry",
    "list_models",
]
