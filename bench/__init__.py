"""Benchmarks: costs compared with peers, in one run on one machine.

`make bench` runs all, `make bench ARGS="client"` one. A benchmark is a module of this package with
`run()`; it prints a table and fails only on ratios, since times depend on the machine.
"""
