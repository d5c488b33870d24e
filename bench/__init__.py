"""Measurements on real processes.

`bench/compare` is `easel bench` and the only part in the wheel: `comparison` measures the `workloads` on two sides
(`side`), `control_side` with the tasks of `control` and `easel_side` with the `canvases`, on `servers`; it reads the
`counters`, and `table` prints the results. `bench/scripts` are programs for a checkout; the first lines of each say how
to run it. `hops`, `measuring`, `servers` and `fixtures` serve the scripts.
"""
