"""The command line as a function, and the files of this folder."""

from __future__ import annotations

import io
import json
import runpy
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("data")
RESULTS = ROOT / "results" / "mamem.csv"


class Left(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str
    error: BaseException | None  # that reached the interpreter

    @property
    def document(self) -> Any:
        assert self.code == 0, (self.out, self.err, self.error)
        return json.loads(self.out)


def run(*arguments: object) -> Left:
    """``python -m gbwatt``, within this process; an error that reaches the interpreter is exit code 1."""
    out, err = io.StringIO(), io.StringIO()
    before, shown = sys.argv, warnings.showwarning
    sys.argv = ["gbwatt", *map(str, arguments)]
    code, error = 0, None
    try:
        with redirect_stdout(out), redirect_stderr(err):
            runpy.run_module("gbwatt", run_name="__main__")
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except Exception as raised:
        code, error = 1, raised
    finally:
        sys.argv, warnings.showwarning = before, shown
    return Left(code, out.getvalue(), err.getvalue(), error)


def stored(name: str) -> Any:
    """A document of this folder."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def keep(name: str, document: Any) -> None:
    """Write a document of this folder."""
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    (DATA / f"{name}.json").write_text(text, encoding="utf-8")
