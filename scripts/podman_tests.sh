#!/bin/sh
# Does the container backend keep its contract on Podman's Docker-compatible socket?
#
#   scripts/podman_tests.sh [pytest arguments]
#
# Podman (Debian's package) serves a socket in a temporary directory, with its storage there too;
# nothing of a Podman that is in use is touched. Where the backend refuses this Podman, or Podman
# cannot start a container here, the exact reason is printed and the status is 0: it is no failure
# of the suites. Otherwise they run on it, and their status is ours.
set -eu
python=.venv/bin/python

if ! command -v podman >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install --yes \
            --no-install-recommends podman </dev/null >/dev/null || true
    fi
    if ! command -v podman >/dev/null 2>&1; then
        echo "left out: podman is not installed (as root: apt-get install podman)"
        exit 0
    fi
fi

place=$(mktemp -d /tmp/podman-tests.XXXXXX)
service=
finish() {
    [ -z "$service" ] || { kill "$service" && wait "$service"; } 2>/dev/null || true
    umount "$place/storage/overlay" 2>/dev/null || true
    rm -rf "$place"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

podman() {
    command podman --root "$place/storage" --runroot "$place/run" --cgroup-manager cgroupfs "$@"
}
command podman --root "$place/storage" --runroot "$place/run" --cgroup-manager cgroupfs \
    system service --time 0 "unix://$place/socket" >"$place/log" 2>&1 &
service=$!

export DOCKER_HOST="unix://$place/socket"
attempts=0
until $python scripts/engine.py --quiet 2>/dev/null; do
    attempts=$((attempts + 1))
    if [ "$attempts" -gt 100 ] || ! kill -0 "$service" 2>/dev/null; then
        echo "left out: podman's service does not answer: $(tail -n 3 "$place/log")"
        exit 0
    fi
    sleep 0.2
done
podman version --format 'podman {{.Client.Version}}'

# What Podman itself can do here, without us: the commonest reasons why nothing starts.
image=$(podman import --quiet "$($python -c '
from executor import images
found = images.find("python")
print("/none" if found is None else found.archive)')" 2>/dev/null | tail -n 1)
if [ -n "$image" ]; then
    said=$(podman run --rm --network none "$image" true 2>&1) ||
        echo "podman cannot start a container here: $(echo "$said" | tail -n 1)"
    for option in nr_inodes=16 uid=1000 gid=1000; do
        said=$(podman create --tmpfs "/x:$option" "$image" true 2>&1) ||
            echo "podman's tmpfs: $(echo "$said" | tail -n 1)"
    done
fi

if ! said=$($python -c 'from executor.cli import main; main()' doctor --sandbox docker --json); then
    echo "left out: contract and security suites, for the backend refuses this engine:"
    echo "$said" | $python -c 'import json, sys; print(json.load(sys.stdin)["backends"][0]["message"])'
    exit 0
fi
HOOK_EXECUTOR_REQUIRE=docker $python -m pytest -m "not slow" -k docker tests/contract tests/security "$@"
