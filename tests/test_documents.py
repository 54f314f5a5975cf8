"""Pages that are made of results say what the results say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_results_is_what_the_rows_give(tmp_path):
    page = tmp_path / "results.md"
    shutil.copy(ROOT / "docs/results.md", page)
    rows = [word for file in sorted(ROOT.glob("results/*.csv")) for word in ("--results", str(file))]
    command = [sys.executable, "-m", "gbwatt", "tables", "--fill", page.name, *rows]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    made, committed = page.read_text(encoding="utf-8"), (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert "<!-- table: main -->\n###" in committed
    assert made == committed, "call `make results`"
    for picture in re.findall(r"\]\((results-\S+\.svg)\)", committed):
        assert (ROOT / "docs" / picture).is_file()
