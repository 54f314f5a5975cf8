"""Documents of ``--json``: programs that read them find every value where it was, of the type that it had."""

from __future__ import annotations

import pytest

from tests.golden import documents, doors
from tests.golden.program import stored

#: It needs packages that the tests do not have.
NOT_HERE = {"gbwatt finetune"}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "group",
    [pytest.param(name, marks=pytest.mark.slow if name == "new runs" else ()) for name in documents.GROUPS],
)
def test_documents_have_the_same_form(group):
    found, known = documents.observe(group), stored("json_output")[group]
    assert list(found) == list(known)
    for name in known:
        assert found[name] == known[name], name


def test_every_command_with_documents_is_tried():
    tried = {name.split(",")[0].split(" --")[0] for group in stored("json_output").values() for name in group}
    with_option = {
        name for name, command in doors.commands().items() if any("--json" in one.opts for one in command.params)
    }
    assert with_option - NOT_HERE == {f"gbwatt {name}" for name in tried}
