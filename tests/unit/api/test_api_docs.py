"""Are the API's page, the metrics' table and the dashboard what the code does?"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.support import TOOL_CALL
from tests.unit.api.conftest import Api

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_script_writes() -> None:
    path = ROOT / "scripts" / "build_api_docs.py"
    spec = importlib.util.spec_from_file_location("build_api_docs", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == script.render()


async def families(api: Api) -> set[str]:
    api.service.executor.emit("tool_call", TOOL_CALL, session_id="s")
    await api.service.executor.drain()
    await api.client.get("/api/hooks")
    text = (await api.client.get("/metrics")).text
    found = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    return {name for name, _ in found if not name.endswith("_created")}


async def test_every_metric_is_documented_and_every_documented_one_exists(api: Api) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `prx_")]
    documented = {name for row in rows for name in re.findall(r"`(prx_\w+)`", row)}
    assert documented == await families(api)


async def test_the_dashboard_asks_for_metrics_that_exist(api: Api) -> None:
    text = (ROOT / "contrib" / "grafana" / "hook-executor.json").read_text(encoding="utf-8")
    expressions = [
        target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]
    ]
    known = await families(api)
    for expression in expressions:
        names = re.findall(r"\bprx_\w+", expression)
        assert names, expression
        for name in names:
            assert name in known or name.removesuffix("_bucket") in known, name
