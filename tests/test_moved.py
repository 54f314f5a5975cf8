"""Former names of public modules keep working, with a DeprecationWarning."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from gbwatt import _moved, decoding, errors
from gbwatt.models import serialization


@pytest.mark.parametrize("name", sorted(_moved.MOVED))
def test_a_former_name_can_be_imported_with_a_warning(name):
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=name.replace(".", r"\.")):
        module = import_module(name)
    assert any(hasattr(module, known) for known in dir(import_module(_moved.MOVED[name][0])))


@pytest.mark.filterwarnings("ignore:gbwatt:DeprecationWarning")
def test_former_names_give_the_objects_of_today():
    from gbwatt.checks import ParameterError
    from gbwatt.models.files import load_pretrained
    from gbwatt.training import EEGDecoder

    assert EEGDecoder is decoding.EEGDecoder
    assert load_pretrained is serialization.load_pretrained
    assert ParameterError is errors.ParameterError


@pytest.mark.filterwarnings("ignore:gbwatt:DeprecationWarning")
def test_unknown_names_of_former_modules_are_errors():
    with pytest.raises(ImportError):
        from gbwatt.checks import nothing  # noqa: F401


@pytest.mark.filterwarnings("ignore:gbwatt:DeprecationWarning")
def test_a_former_module_does_not_hide_the_function_of_its_name():
    from gbwatt import explain

    with pytest.raises(TypeError, match="attribution"):
        explain.localisation()


def test_todays_names_do_not_warn():
    code = "import gbwatt, gbwatt.decoding, gbwatt.geometry, gbwatt.models, gbwatt.data, gbwatt.cli"
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:gbwatt", "-c", code], check=True)


@pytest.mark.parametrize(
    ("module", "former", "current"),
    [("gbwatt.data.trials", "settled", "freeze"), ("gbwatt.experiments.grid", "twin", "simulated_counterpart")],
)
def test_a_renamed_function_is_found_by_its_former_name_with_a_warning(module, former, current):
    with pytest.warns(DeprecationWarning, match=f"{former} was renamed to {current}"):
        function = getattr(import_module(module), former)
    assert function is getattr(import_module(module), current)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = import_module(module).nothing
