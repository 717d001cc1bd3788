#!/bin/bash
# Says that a session began or ended. Called with "start" or "end".
echo "session $ZERO_HOOK_SESSION: $1 at $ZERO_HOOK_TIMESTAMP"
