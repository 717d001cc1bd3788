"""Run every benchmark of this folder and print one table: ``python -m benchmarks [NAME…]``.

Exit status 0 always: a benchmark tells, it does not judge. Goals are printed beside the figures.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks.table import Row, print_table


def main() -> None:
    names = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    wanted = [f"bench_{name}" for name in sys.argv[1:]] or names
    rows: list[Row] = []
    for name in wanted:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows.extend(importlib.import_module(f"benchmarks.{name}").rows())
    print_table(rows)


if __name__ == "__main__":
    main()
