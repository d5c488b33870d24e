"""Measurements on real processes. Those that are scripts say in their first lines how they are called.

`easel bench` is the comparison: `match` plays the `workloads` by two sides (`side`), `control_side` with the tasks of
`control` and `easel_side` with the `canvases`, on `servers`, and reads the `counters`; `table` tells what was `played`.
"""
