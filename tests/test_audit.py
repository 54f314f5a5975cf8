"""The audit of the locked versions: what is known to be vulnerable fails, and what was not looked up is named."""

from __future__ import annotations

import importlib.util
import urllib.error
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def program():
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci/audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def audit(tmp_path, monkeypatch):
    """The program, on a lock file of two packages, with an index that has nothing."""
    module = program()
    (tmp_path / "requirements.lock").write_text("# exact versions\nalpha==1.0\nBeta_b==2.0.post1\n")
    (tmp_path / "advisories.toml").write_text("")
    monkeypatch.setattr(module, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(module, "LISTED", tmp_path / "advisories.toml")
    monkeypatch.setattr(module, "fetch", {}.get)
    return module


def answer(version, *identifiers, **more):
    found = [
        {"id": name, "aliases": [f"CVE-{name}"], "fixed_in": ["9.9"], "summary": "", **more} for name in identifiers
    ]
    return {"info": {"version": version}, "vulnerabilities": found}


def index(audit, monkeypatch, documents):
    monkeypatch.setattr(audit, "fetch", documents.get)


def test_versions_without_advisories_pass(audit, monkeypatch, capsys):
    index(audit, monkeypatch, {"alpha/1.0": answer("1.0"), "Beta_b/2.0.post1": answer("2.0.post1")})
    assert audit.main() == 0
    said = capsys.readouterr().out
    assert "2 of 2 packages" in said
    assert "NOT AUDITED" not in said


def test_a_known_vulnerability_fails_and_is_named(audit, monkeypatch, capsys):
    index(audit, monkeypatch, {"alpha/1.0": answer("1.0", "PYSEC-7"), "Beta_b/2.0.post1": answer("2.0.post1")})
    assert audit.main() == 1
    said = capsys.readouterr().out
    assert "VULNERABLE: alpha 1.0: PYSEC-7 (fixed in 9.9)" in said


@pytest.mark.parametrize("name", ["PYSEC-7", "CVE-PYSEC-7"])
def test_a_listed_advisory_passes_with_its_reason(audit, monkeypatch, capsys, name):
    index(audit, monkeypatch, {"alpha/1.0": answer("1.0", "PYSEC-7"), "Beta_b/2.0.post1": answer("2.0.post1")})
    audit.LISTED.write_text(f'{name} = "its server is not used"\n')
    assert audit.main() == 0
    assert "its server is not used" in capsys.readouterr().out


def test_a_listed_advisory_does_not_cover_another(audit, monkeypatch):
    index(audit, monkeypatch, {"alpha/1.0": answer("1.0", "PYSEC-7", "PYSEC-8"), "Beta_b": answer("2.0.post1")})
    audit.LISTED.write_text('PYSEC-7 = "its server is not used"\n')
    assert audit.main() == 1


def test_a_listed_advisory_that_is_gone_is_noted(audit, monkeypatch, capsys):
    index(audit, monkeypatch, {"alpha/1.0": answer("1.0"), "Beta_b": answer("2.0.post1")})
    audit.LISTED.write_text('PYSEC-7 = "its server is not used"\n')
    assert audit.main() == 0
    assert "PYSEC-7" in capsys.readouterr().out


def test_a_withdrawn_advisory_is_none(audit, monkeypatch):
    document = answer("1.0", "PYSEC-7", withdrawn="2026-01-01T00:00:00Z")
    index(audit, monkeypatch, {"alpha/1.0": document})
    assert audit.main() == 0


def test_the_newest_version_is_looked_up_where_the_index_has_no_others(audit, monkeypatch, capsys):
    """And only if it is the locked one: advisories of another version say nothing of this one."""
    index(audit, monkeypatch, {"alpha": answer("1.0", "PYSEC-7"), "Beta_b": answer("3.0", "PYSEC-9")})
    assert audit.main() == 1
    said = capsys.readouterr().out
    assert "PYSEC-7" in said
    assert "PYSEC-9" not in said
    assert "NOT AUDITED" in said
    assert "Beta_b 2.0.post1" in said


def test_an_index_without_data_is_no_failure_but_is_said(audit, capsys):
    assert audit.main() == 0
    assert "NOT AUDITED" in capsys.readouterr().out


def test_an_index_out_of_reach_is_no_failure_but_is_said(audit, monkeypatch, capsys):
    def unreachable(path):
        raise audit.Unreachable("no route to host")

    monkeypatch.setattr(audit, "fetch", unreachable)
    assert audit.main() == 0
    said = capsys.readouterr().out
    assert "NOT AUDITED" in said
    assert "no route to host" in said


def test_one_package_out_of_reach_does_not_hide_the_others(audit, monkeypatch, capsys):
    def partly(path):
        if path.startswith("Beta_b"):
            raise audit.Unreachable("timed out")
        return answer("1.0", "PYSEC-7")

    monkeypatch.setattr(audit, "fetch", partly)
    assert audit.main() == 1
    assert "Beta_b 2.0.post1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "problem", [urllib.error.URLError("no such host"), TimeoutError("timed out"), ConnectionResetError()]
)
def test_a_network_without_an_answer_is_out_of_reach(monkeypatch, problem):
    def fail(*_, **__):
        raise problem

    module = program()
    monkeypatch.setattr(module.urllib.request, "urlopen", fail)
    with pytest.raises(module.Unreachable):
        module.fetch("alpha")


def test_an_advisory_without_a_reason_is_refused(audit):
    audit.LISTED.write_text('PYSEC-7 = ""\n')
    with pytest.raises(SystemExit, match="PYSEC-7"):
        audit.main()


@pytest.mark.parametrize("line", ["alpha>=1.0", "alpha", "alpha @ file:///alpha.whl"])
def test_a_line_that_pins_nothing_is_refused(audit, line):
    audit.LOCK.write_text(f"beta==1.0\n{line}\n")
    with pytest.raises(SystemExit, match="name==version"):
        audit.main()


def test_the_lock_file_and_the_list_can_be_read():
    module = program()
    assert len(module.read_lock(module.LOCK.read_text())) > 50
    module.read_listed(module.LISTED.read_text())
