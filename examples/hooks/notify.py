"""Tries to tell somebody about an error. There is no network in the sandbox: this fails at once."""

import json
import sys
import urllib.request

event = json.load(sys.stdin)
text = f"{event['payload']['component']}: {event['payload']['message']}"
urllib.request.urlopen("https://chat.example.com/hooks/on-call", text.encode(), timeout=10)
