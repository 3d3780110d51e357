"""The only place that builds JSON Schema validators.

A schema may come from a caller, and so may the value: nothing that a schema names is fetched,
patterns match in linear time, size and depth are bounded, the first fault ends the validation and
is described in bounded steps, and error texts have no values.

    validator      a validator in this process, and whether its cost is bounded
    evaluations    how often a schema is evaluated at most
    faults         the place and text of a fault
    first_fault    finds it in bounded steps
    isolated       checks in a process that the kernel limits, for the schemas of callers
    isolated_main  the program of that process
"""
