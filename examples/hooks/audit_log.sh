#!/bin/bash
# Appends each event to $AUDIT_LOG, one line of JSON an event. A payload of any size is in the file.
cat "$ZERO_HOOK_PAYLOAD_FILE" >> "$AUDIT_LOG"
