"""Measurements on real processes.

`bench/compare` is `easel bench` and the only part in the wheel: `comparison.py` measures the workloads of
`workloads.py` on two sides (`side.py`), `control_side.py` with the tasks of `control.py` and `easel_side.py` with the
canvases of `canvases.py`, on the servers of `servers.py`; it reads `counters.py`, and `table.py` prints the results.
`bench/scripts` are programs for a checkout; the first lines of each say how to run it. `hops`, `measuring`, `servers`
and `fixtures` serve the scripts.
"""
