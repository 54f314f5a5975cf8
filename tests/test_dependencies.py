"""Everything that the package imports is declared in pyproject.toml, and the other way round."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gbwatt"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Distributions whose modules have another name.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "umap": "umap-learn", "yaml": "pyyaml"}
#: Extras that are only for development.
DEVELOPMENT = {"browser", "dev", "lint", "peers", "test"}
#: Folders in which packages keep copies of others, which may disappear with any version.
VENDORED = {"_vendor", "externals", "vendor"}
#: Modules without a distribution of their own, and the one that they need.
NEEDED = {"torch.utils.tensorboard": "tensorboard"}
#: Declared for extras by name, and imported through another package.
IMPORTED_BY_OTHERS = {"dask"}  # by distributed


class Imported(NamedTuple):
    module: str
    late: bool  # inside a function
    where: str


def imports() -> list[Imported]:
    """All imports of other packages that are executed, those by ``import_module`` included."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for module, late, line in imported(tree, late=False):
            root = module.partition(".")[0]
            if root not in sys.stdlib_module_names and root != "gbwatt":
                found.append(Imported(module, late, f"{file.relative_to(ROOT)}:{line}"))
    return found


def imported(node: ast.AST, late: bool) -> Iterator[tuple[str, bool, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, late, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level:
            yield str(child.module), late, child.lineno
        elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith("import_module"):
            yield from ((text, late, child.lineno) for text in beginning(child.args[0]))
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imported(child, late or function)


def beginning(argument: ast.expr) -> list[str]:
    """The text of a literal, or what an f-string begins with."""
    first = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
    return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []


def normalized(requirement: str) -> str:
    """The name in a requirement, in its normal form."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def distribution(module: str) -> str:
    root = module.partition(".")[0]
    return NEEDED.get(module) or DISTRIBUTIONS.get(root) or normalized(root)


BASE = {normalized(text) for text in PROJECT["dependencies"]}
EXTRAS = {name: texts for name, texts in PROJECT["optional-dependencies"].items() if name not in DEVELOPMENT}
OPTIONAL = {normalized(text) for texts in EXTRAS.values() for text in texts} - {"gbwatt"}
IMPORTS = imports()


def test_imports_are_found():
    modules = {one.module.partition(".")[0] for one in IMPORTS}
    assert {"torch", "numpy", "accelerate", "braindecode", "moabb", "distributed"} <= modules


def test_every_import_is_declared():
    undeclared = [one for one in IMPORTS if distribution(one.module) not in BASE | OPTIONAL]
    assert not undeclared


def test_packages_of_extras_are_imported_when_they_are_needed():
    early = [one for one in IMPORTS if not one.late and distribution(one.module) not in BASE]
    assert not early


def test_no_copy_inside_another_package_is_imported():
    assert not [one for one in IMPORTS if VENDORED & set(one.module.split("."))]


def test_every_dependency_is_imported():
    used = {distribution(one.module) for one in IMPORTS} | IMPORTED_BY_OTHERS
    assert not BASE - used
    assert not OPTIONAL - used


def test_base_and_extras_do_not_overlap():
    assert not BASE & OPTIONAL


def test_the_former_name_of_the_clinical_extra_still_works():
    assert EXTRAS["foundation"] == ["gbwatt[clinical]"]
    assert EXTRAS["clinical"] == ["gbwatt[accelerate,braindecode]"]


#: After torch and NumPy nothing but the standard library, what these two have loaded, and gbwatt can be imported.
BLOCKED = """
import sys
import numpy, torch

allowed = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names) | {"gbwatt"}

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Block())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, check=False)


def test_the_geometry_needs_torch_and_numpy_alone():
    code = """
from gbwatt.geometry import BuresWasserstein
x = torch.eye(3, dtype=torch.float64)
assert float(BuresWasserstein().dist(x, 4 * x)) > 1
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["mne", "gbwatt.models"])
def test_other_packages_are_blocked_in_that_test(name):
    assert "is blocked" in run(f"import {name}").stderr
