"""The command line: `reef --bucket URL COMMAND NAMESPACE …`.

Owns how people type and read: arguments, files in and out, tables, exit codes. Relies on the
faces below. The invariant: only commands that write documents open a namespace for writing, so
that looking at a namespace or tending it never fences its live writer.

Modules here import nothing heavy at their top: `reef --help` must answer at once.
"""
