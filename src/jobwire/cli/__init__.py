"""The command line: a file a command.

    main      the list of commands; loads none of them until it is called
    exits     exit codes, and how a command ends with one
    failures  what each kind of failure means to the one who typed
    out       answers to people and to pipes
    options   what several commands have in common

A command is a file `cli/<command>.py` with a click command named `command`, and a row in the
table of `main`. Heavy imports stand inside its function: `jobwire --help` loads click alone.
"""
