"""WASM plugins: everything between a plugin's folder and an outcome.

Two sides that share ``wire`` and nothing else. The executor's: ``permissions``, ``cache``,
``loader``, ``process``, ``pool``, ``keyvalue``. The other runs in processes of its own and is the
only one that imports wasmtime: ``compiler`` and ``worker``, with ``interface``, ``guest``,
``imports`` and ``confine``. The executor's process never loads a guest, and survives any end of
the others.
"""
