"""The command line: one file per command.

    main       the list of commands; imports a command when it is called
    exits      exit codes, and the exception that ends a command with one
    failures   error messages and exit codes of exceptions
    output     results to stdout, messages to stderr
    options    options and settings that several commands share
    program    runs a command with a client of the gateway
    sanitize   escapes control characters in text of others
    formatting, event_view, live, follow   jobs on a terminal

A command is a file `cli/<command>.py` with a click command named `command`, and a row in the
table of `main`. Heavy imports are inside its function: `jobwire --help` loads only click.
"""
