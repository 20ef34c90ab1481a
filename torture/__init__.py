"""Torture: campaigns that try to make Reef lose, invent or misread data, as long as they are told.

Each campaign is a module with a `run(share)`: it does its part of the work until the share says
that the time is up, counts what it did, and tells every failure with the command that repeats it.
"""
