#!/bin/sh
# Is the virtual environment .venv what this clone needs?, and makes it so.
#
# With the system's Python: one below a user's home may be invisible to the user that hooks run as.
# A stamp with the inputs makes the second time quick.
set -eu
umask 022

python=
for candidate in /usr/bin/python3 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
        >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || { echo "no Python 3.11 or newer with venv" >&2; exit 1; }

if [ -e .venv ] && [ ! -w .venv ]; then
    echo "$PWD/.venv belongs to $(stat -c %U .venv); remove it, or clone into a directory of your own" >&2
    exit 1
fi

stamp=.venv/hook-executor.stamp
inputs=$(
    echo "$PWD"
    "$python" -VV
    cat pyproject.toml constraints.txt hatch_build.py scripts/environment.sh | cksum
)
if [ -x .venv/bin/hook-executor ] && [ "$(cat $stamp 2>/dev/null)" = "$inputs" ]; then
    exit 0
fi

install() { .venv/bin/python -m pip install --quiet --no-input --constraint constraints.txt "$@" </dev/null; }

if [ "$(.venv/bin/python -VV 2>/dev/null)" != "$("$python" -VV)" ]; then
    echo "making .venv with $python"
    "$python" -m venv --clear .venv
fi
echo "installing the Python packages of constraints.txt into .venv"
# A dependency of the tests comes as source only: --use-pep517 builds it in isolation.
install --use-pep517 --editable '.[nats,otel,dev]'
if ! .venv/bin/python scripts/build_cell.py --check; then
    echo "no C compiler links statically here: installing ziglang into .venv"
    install ziglang
fi
printf '%s\n' "$inputs" >$stamp
