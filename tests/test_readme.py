"""The README's code runs and prints what the README says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_code_prints_what_it_says():
    code = re.findall(r"```python\n(.*?)```", README, re.S)
    shown = re.findall(r"```text\n(.*?)```", README, re.S)
    assert len(code) == len(shown) == 1
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code[0], "README.md", "exec"), {})
    assert printed.getvalue() == shown[0]


def test_the_two_commands_are_there():
    assert "make demo" in README
    assert "make test" in README
