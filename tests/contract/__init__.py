"""The API as strangers' tools see it: a client that a generator makes, and requests that a fuzzer makes, both of the
OpenAPI document alone: `python -m tests.contract`.

The tools live in a virtual environment of their own (`.cache/contract`), since they pin libraries that Easel uses in
other versions. It is made at the first call, from PyPI.
"""
