"""The only place that builds JSON Schema validators.

A schema may come from a caller, and so may the value: nothing that a schema names is fetched,
patterns match in linear time, size and depth are bounded, the first fault ends the validation, and
error texts have no values.

    validator      a validator in this process, and how costly it can be at most
    isolated       checks in a process that the kernel limits, for the schemas of callers
    isolated_main  the program of that process
"""
