#!/bin/sh
# Which system packages does this clone need, and can they be installed here?
#
#   scripts/system.sh python            a system Python that can make a virtual environment
#   scripts/system.sh all               also an engine and the image tools
#   scripts/system.sh test              what the tests use beside that; without it some are skipped
#   scripts/system.sh bench             what the benchmarks compare with
#   scripts/system.sh podman            another engine to run the tests on
#
# Missing ones are installed by apt, as root or through a sudo that asks no password. Where that
# cannot be, what is left out is said, and only a missing Python is an error.
set -eu
umask 022
kind=${1:-all}
PATH=$PATH:/usr/sbin:/sbin

if [ ! -w . ]; then
    owner=$(stat -c %U .)
    echo "This clone belongs to $owner, and $(id -un) cannot write to it." >&2
    echo "Clone it into a directory of your own: git clone '$PWD' ~/hook-executor" >&2
    exit 1
fi

can_make_environments() {
    for python in /usr/bin/python3 python3; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

has() { command -v "$1" >/dev/null 2>&1; }

missing=
can_make_environments || missing="$missing python3 python3-venv"
case $kind in
all)
    # An engine that answers, whatever its name, is enough.
    has dockerd || python3 scripts/engine.py --quiet 2>/dev/null || missing="$missing docker.io"
    has mmdebstrap || missing="$missing mmdebstrap"
    [ "$(id -u)" = 0 ] || has newuidmap || missing="$missing uidmap"
    ;;
test)
    has nats-server || missing="$missing nats-server"
    has setfacl || missing="$missing acl"
    ;;
bench)
    has nats-server || missing="$missing nats-server"
    has bwrap || missing="$missing bubblewrap"
    has docker || missing="$missing docker-cli"
    ;;
podman)
    has podman || missing="$missing podman"
    ;;
esac

lists_are_there() { [ -n "$(apt-get indextargets 'Created-By: Packages' 2>/dev/null)" ]; }
needs_lists=
if [ "$kind" = all ] && has apt-get && ! lists_are_there; then needs_lists=yes; fi
[ -n "$missing$needs_lists" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=
elif has sudo && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    as_root=no
fi

if [ "$as_root" != no ] && has apt-get; then
    apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300"
    $apt update </dev/null || echo "apt-get update failed; going on with the lists that are here" >&2
    for package in $missing; do
        # In Debian 12 the client is a part of docker.io.
        if [ "$package" = docker-cli ] && ! apt-cache show docker-cli >/dev/null 2>&1; then
            package=docker.io
        fi
        echo "installing $package"
        $apt install --yes --no-install-recommends "$package" </dev/null >/dev/null ||
            echo "left out: $package: apt could not install it" >&2
        # The tests start servers of their own; the package's listens on every address.
        if [ "$package" = nats-server ] && [ -d /run/systemd/system ]; then
            $as_root systemctl disable --quiet --now nats-server || true
        fi
    done
else
    for package in $missing; do
        echo "left out: $package is not installed, and $(id -un) is neither root nor has a" \
            "sudo without password (as root: apt-get install $package)" >&2
    done
fi

if ! can_make_environments; then
    echo "No Python 3.11 or newer can make virtual environments here." >&2
    echo "Remedy, as root: apt-get install python3 python3-venv" >&2
    exit 1
fi
