"""Does every promise of the security page name tests that exist?"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "security.md"
NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PROBE = re.compile(r"\b[A-L]\d+[a-z]?\b")


def promises() -> list[tuple[str, str]]:
    """The number and the last cell of each row of the table."""
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    return [(number, tried_by) for number, tried_by in rows]


def probe_numbers() -> set[str]:
    folder = ROOT / "tests" / "security" / "probes"
    found = set()
    for path in folder.glob("*.py"):
        found |= set(re.findall(r'^        "([A-L]\d+[a-z]?)",$', path.read_text(), re.MULTILINE))
    return found


def test_the_table_is_found_and_numbered_without_gaps() -> None:
    numbers = [int(number) for number, _ in promises()]
    assert len(numbers) >= 18
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(("number", "tried_by"), promises())
def test_each_promise_names_tests_that_exist(number: str, tried_by: str) -> None:
    nodes = NODE.findall(tried_by)
    words = PROBE.findall(NODE.sub("", tried_by))
    assert nodes or words, f"promise {number} names no test"
    known = probe_numbers()
    for word in words:
        assert word in known, f"promise {number}: there is no probe {word}"
    for file, function in nodes:
        tree = ast.parse((ROOT / file).read_text())
        names = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert function in names, f"promise {number}: {file} has no {function}"
