"""Names that are found on first use: lazily imported ones, and former ones with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Former public modules, each with the modules that have its names now.
MOVED = {
    "gbwatt.checks": ("gbwatt.errors", "gbwatt._validation"),
    "gbwatt.training": ("gbwatt.decoding",),
    "gbwatt.training.estimator": ("gbwatt.decoding.estimator",),
    "gbwatt.training.classifier": ("gbwatt.decoding.estimator",),
    "gbwatt.training.checkpoints": ("gbwatt.decoding.checkpoints", "gbwatt.errors"),
    "gbwatt.training.labels": ("gbwatt.decoding.inputs", "gbwatt.errors"),
    "gbwatt.training.optim": ("gbwatt.nn.optim",),
    "gbwatt.figures": ("gbwatt.plotting",),
    "gbwatt.models.files": ("gbwatt.models.serialization", "gbwatt.errors"),
    "gbwatt.models.foundation": ("gbwatt.clinical",),
    "gbwatt.data.corpora": ("gbwatt.clinical.corpora",),
    "gbwatt.data.steps": ("gbwatt.data.preprocessing.steps",),
    "gbwatt.data.filters": ("gbwatt.data.preprocessing.steps",),
    "gbwatt.data.sanity": ("gbwatt.decoding.baselines", "gbwatt.data.description"),
    "gbwatt.data.baselines": ("gbwatt.decoding.baselines", "gbwatt.data.description"),
    "gbwatt.data.catalogue": ("gbwatt.data.datasets",),
    "gbwatt.data.truth": ("gbwatt.data.trials",),
    "gbwatt.explain.faithfulness": ("gbwatt.explain.quality",),
    "gbwatt.explain.localisation": ("gbwatt.explain.quality",),
    "gbwatt.explain.sanity": ("gbwatt.explain.quality",),
    "gbwatt.explain.patterns": ("gbwatt.explain.internals",),
    "gbwatt.models.gdlnet": ("gbwatt.models.manifold_nets",),
    "gbwatt.models.spdnet": ("gbwatt.models.manifold_nets",),
    "gbwatt.nn.manifolds": ("gbwatt.nn.optim",),
    "gbwatt.geometry.halves": ("gbwatt.geometry.symmetric",),
}


def imported_on_use(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return functions ``__getattr__`` and ``__dir__`` for a package, whose modules are imported on first use.

    ``modules`` are the names of the modules, with the names in them that are attributes of the package.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        """Import the module that has the attribute ``name``, and return the attribute."""
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find, lambda: sorted({*vars(sys.modules[package]), *homes})


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a function ``__getattr__`` for a module, which finds attributes by their former names, with a warning.

    ``names`` are the former names with the new ones.
    """

    def find(name: str) -> Any:
        """Return the attribute with the former name ``name``, with a warning."""
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} was renamed to {names[name]}.", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return find


class _Forwarder(ModuleType):
    """A module whose attributes are those of other modules."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            for target in MOVED[self.__name__]:
                attribute = getattr(import_module(target), name, None)
                if attribute is not None:
                    return attribute
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of this name, which the import of the module hides in its package."""
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class _MovedFinder(MetaPathFinder, Loader):
    """Finds modules by their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a former name, None for any other."""
        del path, target
        if fullname not in MOVED:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MOVED)
        return ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create the forwarding module, with a warning that names the new place."""
        new = " or ".join(name for name in MOVED[spec.name] if "._" not in name)
        warnings.warn(f"{spec.name} was renamed; import from {new}.", DeprecationWarning, stacklevel=2)
        return _Forwarder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute: attributes are looked up when they are used."""


def install() -> None:
    """Let Python find modules by their former names, once."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedFinder())  # before folders that an earlier version may have left
