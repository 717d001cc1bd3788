"""Is what the documentation says true, complete, and not broken?

Fenced blocks marked ``sh test`` or ``python test`` are run, each in an empty workspace of its own,
on namespaces; words after ``test`` are programs that the block needs on the host.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from cyclopts import App
from pydantic import BaseModel

import executor
from executor.admission import RESERVED_NAMES, RESERVED_PREFIXES
from executor.cli import build_app
from executor.events import GATE_FIELDS, LIFECYCLE_FIELDS, make_event
from executor.outcome import Cause, Status
from executor.plan import environment as variables_of
from executor.policy import Policy
from executor.settings import PermissionRule, Settings
from tests.contract.conftest import available
from tests.support import Workspace, missing

__all__ = ["available"]

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
COMING = {"docs/api.md", "docs/operations.md"}
"""Pages that others write; links to them may dangle until then."""
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
_FENCE = re.compile(r"^```(?P<kind>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_OPTION = re.compile(r"--[a-z][a-z-]*")
GLOBAL_OPTIONS = {"--workspace", "--sandbox", "--help", "--version"}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    words: Sequence[str]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            words = found["kind"].split()
            line = text.count("\n", 0, found.start()) + 1
            yield Block(str(page.relative_to(ROOT)), line, words, found["text"])


BLOCKS = list(blocks())
TESTED = [one for one in BLOCKS if one.words[1:2] == ["test"]]


# ---------------------------------------------------------------------------------- what is run


@pytest.fixture
def namespace(available: Mapping[str, str | None]) -> None:
    reason = available["namespace"]
    if reason is not None:
        missing("namespace", reason)


@pytest.fixture
def environment(tmp_path: Path, private_state: Path) -> Mapping[str, str]:
    """In which ``hook-executor`` is this program, on namespaces."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "hook-executor"
    code = "from executor.cli import main; main()"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}' --sandbox namespace \"$@\"\n")
    program.chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        "PATH": path,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(private_state),
        "PYTHONPATH": str(ROOT),
    }


def run_shell(
    text: str, workspace: Workspace, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    answer = subprocess.run(
        ["bash", "-c", f"umask 022\nset -euo pipefail\n{text}"],
        cwd=workspace.path,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer


def run_python(
    text: str, workspace: Workspace, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What stands in a block, inside an event loop and on namespaces."""
    program = (
        "import anyio, executor\n"
        "opened = executor.Executor.open\n"
        "def on_namespaces(*words, **options):\n"
        "    return opened(*words, **{'sandbox': 'namespace', **options})\n"
        "executor.Executor.open = on_namespaces\n"
        f"async def main():\n{textwrap.indent(text, '    ')}\n"
        "anyio.run(main)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=workspace.path,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert answer.returncode == 0, answer.stderr
    return answer


RUNNERS = {"sh": run_shell, "python": run_python}


@pytest.mark.namespace
@pytest.mark.usefixtures("namespace")
@pytest.mark.parametrize("block", TESTED, ids=str)
def test_every_marked_example_runs(
    block: Block, workspace: Workspace, environment: Mapping[str, str]
) -> None:
    for program in block.words[2:]:
        if shutil.which(program) is None:
            missing(program, "the example needs it on this host")
    RUNNERS[block.words[0]](block.text, workspace, environment)


@pytest.mark.namespace
@pytest.mark.usefixtures("namespace")
def test_the_first_sixty_seconds_are_as_promised(
    workspace: Workspace, environment: Mapping[str, str], tmp_path: Path
) -> None:
    shell, python = (one for one in BLOCKS if one.page == "README.md" and one.line in _sixty())
    set_up, path, *rest = shell.text.splitlines()
    assert set_up == "make install"
    assert re.search(r"^install:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert path == 'export PATH="$PWD/.venv/bin:$PATH"'
    first = tmp_path / "first"
    answer = run_shell("\n".join(rest).replace("/tmp/first", str(first)), workspace, environment)
    assert "none would fail" in answer.stdout
    assert "no network" in answer.stdout
    told = run_python(python.text, Workspace(first), environment)
    assert told.stdout == "hook_01 ok exit\n"


def _sixty() -> range:
    """The lines of that chapter."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index("## Sixty seconds")
    end = next(n for n in range(begin + 1, len(lines)) if lines[n].startswith("## "))
    return range(begin, end)


def test_enough_is_marked() -> None:
    assert {one.page for one in TESTED} >= {
        f"docs/{name}.md"
        for name in ("reference", "policies", "gate", "bus", "writing-hooks", "troubleshooting")
    }


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.words[:1] in (["json"], ["toml"])], ids=str
)
def test_every_document_can_be_read(block: Block) -> None:
    import json
    import tomllib

    if block.words[0] == "json":
        json.loads(block.text)
    elif not block.text.startswith("[[capabilities]]"):
        tomllib.loads(block.text)


# -------------------------------------------------------------------------------------- links


def slug(heading: str) -> str:
    """The anchor that hosting sites make of a heading."""
    text = re.sub(r"[^\w\- ]", "", heading.lower())
    return text.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            if str(target.relative_to(ROOT)) not in COMING:
                broken.append(link)
        elif anchor:
            text = _FENCE.sub("", target.read_text(encoding="utf-8"))
            if anchor not in map(slug, _HEADING.findall(text)):
                broken.append(link)
    assert broken == []


# ------------------------------------------------------------------------- what must be documented


def chapter(number: str) -> str:
    """A chapter of the reference, by its number."""
    level = "##" if "." not in number else "###"
    match = re.search(
        rf"^{level} {re.escape(number)}\.? .*?(?=^#{{2,{len(level)}}} |\Z)",
        REFERENCE,
        re.MULTILINE | re.DOTALL,
    )
    assert match is not None, number
    return match[0]


def cells(text: str, column: int = 0) -> list[str]:
    """The code spans of one column of every table."""
    rows = re.findall(r"^\|(.+)\|$", text.replace("\\|", "¦"), re.MULTILINE)
    return [span for row in rows for span in re.findall(r"`([^`]+)`", row.split("|")[column])]


def commands(app: App, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command that does something, with its options."""
    for name in app:
        if name.startswith("-"):
            continue
        one, words = app[name], f"{prefix} {name}".strip()
        if list(one) and one.default_command is None:
            yield from commands(one, words)
        else:
            arguments = one.assemble_argument_collection()
            named = (spelling for argument in arguments for spelling in argument.names)
            options = {spelling for spelling in named if _OPTION.fullmatch(spelling)}
            yield words, {name for name in options if not name.startswith("--empty-")}


def test_every_command_and_option_is_documented_and_no_other() -> None:
    documented = {}
    for row in cells(chapter("10")):
        words = re.match(r"[a-z]+(?: [a-z]+)?(?=$| )", row)
        if words is not None and not row[0].isdigit():
            documented[words[0]] = set(_OPTION.findall(row))
    real = {words: options - GLOBAL_OPTIONS for words, options in commands(build_app())}
    assert documented == real


def test_every_key_of_config_toml_is_documented() -> None:
    text = chapter("3.1")
    keys = set(cells(text, 0)) | set(cells(text, 1))
    for section, field in Settings.model_fields.items():
        assert {f"[{section}]", f"[[{section}]]"} & keys, section
        model = field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            from executor.settings import Binding

            model = Binding
        assert set(model.model_fields) <= keys, section
    gate = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    assert all(f"{key} =" in gate for key in PermissionRule.model_fields)


def test_every_key_of_a_policy_is_documented() -> None:
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    for name, field in Policy.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            part = text.partition(f"### `[{name}]`")[2].partition("###")[0]
            assert cells(part) == list(model.model_fields)
        else:
            assert f"`{name}`" in text


def policy_docs() -> ModuleType:
    place = ROOT / "scripts" / "policy_docs.py"
    spec = importlib.util.spec_from_file_location("policy_docs", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_policies_are_current() -> None:
    """To renew them: ``python scripts/policy_docs.py``."""
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    assert policy_docs().renewed(page) == page


def test_every_event_is_documented_with_its_fields() -> None:
    for number, events in (("1.1", LIFECYCLE_FIELDS), ("1.2", GATE_FIELDS)):
        rows = {
            row.split("`")[1]: row for row in chapter(number).splitlines() if row.startswith("| `")
        }
        assert set(rows) == set(events)
        for event, fields in events.items():
            assert all(f"`{field}` {kind}" in rows[event] for field, kind in fields.items()), event


def test_every_status_and_cause_is_documented() -> None:
    table = chapter("3")
    assert {status.value for status in Status} <= set(cells(table))
    assert {cause.value for cause in Cause} <= set(cells(table, 1))


def test_every_variable_of_a_hook_is_documented() -> None:
    event = make_event("turn_complete", {}, session_id="sess_docs", now=datetime.now(UTC))
    given = variables_of(event, {}, home=True, emit=True)
    assert set(given) == set(cells(chapter("2.2")))


def test_every_reserved_variable_is_documented() -> None:
    text = chapter("2.1")
    assert all(f"`{name}`" in text for name in (*RESERVED_NAMES, *RESERVED_PREFIXES))


def test_every_field_of_an_action_is_documented() -> None:
    from executor.action import Action, ManagedFields

    fields = {*Action.model_fields, *ManagedFields.model_fields}
    assert fields == set(cells(chapter("2").partition("### 2.1")[0]))


def test_every_request_of_the_api_is_documented_and_no_other() -> None:
    from executor.api.app import build_app as build_api

    paths = build_api().openapi()["paths"]
    real = {
        f"{method.upper()} {path}" for path, operations in paths.items() for method in operations
    }
    rows = re.findall(r"^\| `([A-Z]+ /[^`?]*)", chapter("6"), re.MULTILINE)
    assert set(rows) == real


def test_every_public_name_is_documented() -> None:
    assert all(f"`{name}`" in chapter("11") for name in executor.__all__)


def test_every_section_that_the_code_cites_exists() -> None:
    cited = set()
    for path in (ROOT / "executor").rglob("*"):
        if path.suffix in (".py", ".c", ".h"):
            text = path.read_text(encoding="utf-8")
            cited.update(re.findall(r"SPEC (?:section )?(\d+(?:\.\d+)?)", text))
    numbers = re.findall(r"^#{2,3} (\d+(?:\.\d+)?)", REFERENCE, re.MULTILINE)
    assert cited <= set(numbers)


def test_every_module_that_is_named_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"`(executor(?:\.\w+)+)", page.read_text(encoding="utf-8")):
            pkgutil.resolve_name(name)


def test_pages_speak_of_the_project_alone() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"/work\b|/farm\b|SPEC section|\bissue \d", text), page
