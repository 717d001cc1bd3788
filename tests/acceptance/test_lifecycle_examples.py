"""The lifecycle hooks' documented examples work as they are printed.

Each runs with nothing but the remedy that ``check`` prints.
"""

# ruff: noqa: RUF001  (the examples stand as they are printed, full-width brackets and all)

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CommandLine
from tests.support import missing

TOOL_CALL: Mapping[str, object] = {"tool": "bash", "success": True, "output": "ok"}
LLM_RESPONSE: Mapping[str, object] = {
    "provider": "openai",
    "model": "gpt-4o",
    "duration_ms": 1842,
    "success": True,
}

AUDIT = """\
{
  "hooks": {
    "tool_call": [
      {
        "command": "/opt/hooks/audit_log.sh",
        "env": {
          "AUDIT_LOG": "/var/log/prx/tool_audit.jsonl"
        },
        "timeout_ms": 2000
      }
    ]
  }
}
"""
AUDIT_SCRIPT = """\
#!/bin/bash
echo "$ZERO_HOOK_PAYLOAD" >> "$AUDIT_LOG"
"""

SLACK = """\
{
  "hooks": {
    "error": [
      {
        "command": "curl",
        "args": [
          "-s", "-X", "POST",
          "-H", "Content-Type: application/json",
          "-d", "@-",
          "https://hooks.slack.com/services/T00/B00/xxxxx"
        ],
        "stdin_json": true,
        "timeout_ms": 10000
      }
    ]
  }
}
"""

METRICS = """\
{
  "hooks": {
    "llm_response": [
      {
        "command": "python3",
        "args": ["/opt/hooks/metrics.py"],
        "stdin_json": true,
        "timeout_ms": 3000
      }
    ]
  }
}
"""
METRICS_SCRIPT = """\
import sys, json

data = json.load(sys.stdin)
payload = data["payload"]
provider = payload["provider"]
model = payload["model"]
duration = payload["duration_ms"]
success = payload["success"]

# 推送到 StatsD、Prometheus pushgateway 或任何指标后端
print(f"prx.llm.duration,provider={provider},model={model} {duration}")
print(f"prx.llm.success,provider={provider},model={model} {1 if success else 0}")
"""
METRICS_LINES = (
    "prx.llm.duration,provider=openai,model=gpt-4o 1842\n"
    "prx.llm.success,provider=openai,model=gpt-4o 1\n"
)

SESSIONS = """\
{
  "hooks": {
    "agent_start": [
      {
        "command": "/opt/hooks/session_tracker.sh",
        "args": ["start"],
        "timeout_ms": 2000
      }
    ],
    "agent_end": [
      {
        "command": "/opt/hooks/session_tracker.sh",
        "args": ["end"],
        "timeout_ms": 2000
      }
    ]
  }
}
"""

COMPLETE = """\
{
  "hooks": {
    "agent_start": [
      {
        "command": "/usr/local/bin/notify",
        "args": ["--channel", "ops", "--title", "Agent Started"],
        "timeout_ms": 3000
      }
    ],
    "llm_response": [
      {
        "command": "python3",
        "args": ["/opt/hooks/log_latency.py"],
        "stdin_json": true,
        "timeout_ms": 2000
      }
    ],
    "tool_call": [
      {
        "command": "/opt/hooks/audit_tool_usage.sh",
        "env": {
          "LOG_DIR": "/var/log/prx/audit"
        },
        "timeout_ms": 5000
      }
    ],
    "error": [
      {
        "command": "curl",
        "args": [
          "-X", "POST",
          "-H", "Content-Type: application/json",
          "-d", "@-",
          "https://hooks.slack.com/services/T00/B00/xxxxx"
        ],
        "stdin_json": true,
        "timeout_ms": 10000
      }
    ]
  }
}
"""

BY_VARIABLE = """\
#!/bin/bash
# 从环境变量读取负载
echo "$ZERO_HOOK_PAYLOAD" | jq '.payload.tool'
"""
BY_FILE = """\
import os, json

payload_file = os.environ["ZERO_HOOK_PAYLOAD_FILE"]
with open(payload_file) as f:
    data = json.load(f)
print(f"Tool: {data['payload']['tool']}, Success: {data['payload']['success']}")
"""
BY_STDIN = """\
#!/bin/bash
# 从 stdin 读取（需要在 hook 配置中设置 stdin_json: true）
read -r payload
echo "$payload" | jq -r '.payload.message'
"""


def put(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def needs(program: str, shell: CommandLine) -> None:
    """The namespace sandbox shows the host's programs; an image has its own."""
    if shell.sandbox == "namespace" and shutil.which(program, path="/usr/bin:/bin") is None:
        missing(program, "not on this host, whose /usr the namespace sandbox shows")


def findings(report: Any) -> list[str]:
    return [found["message"] for hook in report["hooks"] for found in hook["findings"]]


def test_the_audit_log_hook_writes_its_file(shell: CommandLine, opt_hooks: Path) -> None:
    put(opt_hooks / "audit_log.sh", AUDIT_SCRIPT)
    shell.workspace.file("hooks.json", AUDIT)

    code, report = shell.check()
    assert code == 1
    (told,) = findings(report)
    assert "`/var/log/prx/tool_audit.jsonl` in `AUDIT_LOG` is not visible" in told
    assert "add `/var/log/prx` to `filesystem.write`" in told
    (run,) = shell.emit("tool_call", TOOL_CALL)
    assert run["status"] == "failed"

    shell.mend(report)
    assert shell.check()[0] == 0
    for _ in range(2):
        (run,) = shell.emit("tool_call", TOOL_CALL)
        assert (run["status"], run["stderr"]) == ("ok", "")
    lines = Path("/var/log/prx/tool_audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert [list(json.loads(line)) for line in lines] == [
        ["event", "timestamp", "session_id", "payload"]
    ] * 2
    assert json.loads(lines[0])["payload"] == TOOL_CALL


def test_the_latency_hook_prints_its_metrics(shell: CommandLine, opt_hooks: Path) -> None:
    put(opt_hooks / "metrics.py", METRICS_SCRIPT)
    shell.workspace.file("hooks.json", METRICS)

    code, report = shell.check()
    assert code == 1
    assert findings(report) == [
        "`/opt/hooks/metrics.py` in `args[0]` is not visible: add it to `filesystem.read`"
    ]

    shell.mend(report)
    assert shell.check()[0] == 0
    (run,) = shell.emit("llm_response", LLM_RESPONSE)
    assert (run["status"], run["stdout"]) == ("ok", METRICS_LINES)


def test_the_session_tracker_needs_no_grant(shell: CommandLine, opt_hooks: Path) -> None:
    put(opt_hooks / "session_tracker.sh", '#!/bin/bash\necho "$1 $ZERO_HOOK_SESSION"\n')
    shell.workspace.file("hooks.json", SESSIONS)
    code, report = shell.check()
    assert (code, findings(report), report["remedies"]) == (0, [], [])
    (start,) = shell.emit("agent_start", {"agent": "a", "session": "sess_abc123"})
    (end,) = shell.emit("agent_end", {"success": True, "messages_count": 4})
    assert (start["status"], start["stdout"]) == ("ok", "start sess_abc123\n")
    assert (end["status"], end["stdout"]) == ("ok", "end sess_abc123\n")


def test_the_slack_hook_fails_fast_and_says_why(shell: CommandLine) -> None:
    needs("curl", shell)
    shell.workspace.file("hooks.json", SLACK)
    code, report = shell.check()
    assert code == 1
    assert any("network.allow" in told for told in findings(report))
    (run,) = shell.emit("error", {"component": "provider", "message": "rate limit"})
    assert run["status"] == "failed"
    assert "network.allow" in run["reason"]
    assert run["duration_ms"] < 5000


def test_the_complete_example_lacks_only_its_network(shell: CommandLine, opt_hooks: Path) -> None:
    needs("curl", shell)
    put(Path("/usr/local/bin/notify"), '#!/bin/sh\necho "$4 in $2"\n')
    put(opt_hooks / "log_latency.py", METRICS_SCRIPT)
    script = '#!/bin/bash\necho "$ZERO_HOOK_PAYLOAD" >> "$LOG_DIR/usage.jsonl"\n'
    put(opt_hooks / "audit_tool_usage.sh", script)
    shell.workspace.file("hooks.json", COMPLETE)

    code, report = shell.check()
    assert code == 1
    assert (
        "`/opt/hooks/log_latency.py` in `args[0]` is not visible: add it to `filesystem.read`"
        in findings(report)
    )
    shell.mend(report)
    code, report = shell.check()
    assert code == 1
    assert [hook["event"] for hook in report["hooks"] if hook["fails"]] == ["error"]

    (run,) = shell.emit("agent_start", {"agent": "a", "session": "s"})
    assert (run["status"], run["stdout"]) == ("ok", "Agent Started in ops\n")
    (run,) = shell.emit("llm_response", LLM_RESPONSE)
    assert (run["status"], run["stdout"]) == ("ok", METRICS_LINES)
    (run,) = shell.emit("tool_call", TOOL_CALL)
    assert run["status"] == "ok"
    assert len(Path("/var/log/prx/audit/usage.jsonl").read_text().splitlines()) == 1
    (run,) = shell.emit("error", {"component": "c", "message": "m"})
    assert run["status"] == "failed"
    assert "network.allow" in run["reason"]


@pytest.mark.parametrize(
    ("name", "text", "event", "payload", "said"),
    [
        ("by_variable.sh", BY_VARIABLE, "tool_call", TOOL_CALL, '"bash"\n'),
        ("by_file.py", BY_FILE, "tool_call", TOOL_CALL, "Tool: bash, Success: True\n"),
        (
            "by_stdin.sh",
            BY_STDIN,
            "error",
            {"component": "provider", "message": "rate limit"},
            "rate limit\n",
        ),
    ],
    ids=["variable", "file", "stdin"],
)
def test_each_channel_carries_the_payload(
    shell: CommandLine,
    name: str,
    text: str,
    event: str,
    payload: Mapping[str, object],
    said: str,
) -> None:
    shell.workspace.file(f"hooks/{name}", text, mode=0o755)
    action: dict[str, object] = {"command": f"hooks/{name}", "stdin_json": True}
    if name.endswith(".py"):
        action = {"command": "python3", "args": [f"hooks/{name}"]}
    else:
        needs("jq", shell)
    shell.workspace.hooks({event: [action]})
    (run,) = shell.emit(event, payload)
    assert (run["status"], run["stdout"]) == ("ok", said)
