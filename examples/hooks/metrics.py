"""Prints how long the model took, for a metrics collector. Reads the event on stdin."""

import json
import sys

payload = json.load(sys.stdin)["payload"]
labels = f"provider={payload['provider']},model={payload['model']}"
print(f"prx.llm.duration,{labels} {payload['duration_ms']}")
print(f"prx.llm.success,{labels} {int(payload['success'])}")
