"""Names that others import, arguments that they give, options that they type: none may go."""

from __future__ import annotations

import importlib
import inspect
import warnings

import pytest

import gbwatt
from gbwatt.models import create
from tests.golden import doors
from tests.golden.program import stored

MODULES = (
    "gbwatt",
    "gbwatt.geometry",
    "gbwatt.nn",
    "gbwatt.models",
    "gbwatt.data",
    "gbwatt.explain",
    "gbwatt.training",
)
#: Names that are used from outside though they are in no ``__all__``.
USED = {
    "gbwatt.models.files": ("load_pretrained", "save_pretrained"),
    "gbwatt.training": (
        "CheckpointError",
        "EEGDecoder",
        "GBWAttClassifier",
        "NonFiniteLossError",
        "UnknownLabelError",
    ),
    "gbwatt.checks": ("MismatchError", "NotFiniteError", "NotSPDError", "ParameterError", "ShapeError"),
}
CALLED = {
    "GBWAtt": lambda: gbwatt.GBWAtt,
    "GBWAttClassifier": lambda: gbwatt.GBWAttClassifier,
    "EEGDecoder": lambda: gbwatt.EEGDecoder,
    "create": lambda: create,
}


def parameters(called):
    """Names and defaults; ``required`` where there is none."""
    given = inspect.signature(called).parameters.values()
    return {p.name: "required" if p.default is p.empty else repr(p.default) for p in given if p.kind != p.VAR_KEYWORD}


def options(command):
    return {
        "options": sorted(
            name
            for p in command.params
            if p.param_type_name == "option"
            for name in (*p.opts, *p.secondary_opts)
            if name != "--help"
        ),
        "arguments": [p.required for p in command.params if p.param_type_name == "argument"],
    }


def observe():
    return {
        "modules": {name: sorted(importlib.import_module(name).__all__) for name in MODULES},
        "parameters": {name: parameters(find()) for name, find in CALLED.items()},
        "commands": {name: options(command) for name, command in doors.commands().items()},
    }


def require(module, names):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = importlib.import_module(module)
        missing = [name for name in names if not hasattr(found, name)]
    assert not missing


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_still_there(module):
    require(module, stored("public_names")["modules"][module])


@pytest.mark.parametrize("module", MODULES[:-1])
def test_public_names_are_still_listed(module):
    listed = importlib.import_module(module).__all__
    assert set(stored("public_names")["modules"][module]) <= set(listed)


@pytest.mark.parametrize("module", USED)
def test_names_that_are_used_are_still_there(module):
    require(module, USED[module])


@pytest.mark.parametrize("name", CALLED)
def test_arguments_are_still_taken_and_have_the_same_defaults(name):
    known = stored("public_names")["parameters"][name]
    found = parameters(CALLED[name]())
    assert {key: found.get(key) for key in known} == known


@pytest.mark.parametrize("command", stored("public_names")["commands"])
def test_options_are_still_taken(command):
    known, found = stored("public_names")["commands"][command], options(doors.commands()[command])
    assert set(known["options"]) <= set(found["options"])
    assert known["arguments"] == found["arguments"][: len(known["arguments"])]
    assert not any(found["arguments"][len(known["arguments"]) :])  # others may be left out
