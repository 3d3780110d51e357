"""Figures: what things cost, beside their peers, in one run on one machine.

`make bench` runs all, `make bench ARGS="client"` one. A bench is a module of this package with a
`run()`; it prints its table and fails only on ratios, since times belong to the machine.
"""
