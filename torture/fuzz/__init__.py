"""Fuzzing: bytes that nobody wrote, given to everything that reads bytes.

Whatever the bytes are, reading them gives a value or an error of `reef.errors`: no other exception,
no dead interpreter, no more memory or time than a small object may cost. Most damage stops at a
checksum, so most inputs here have theirs put right again: what is behind the checksums must keep
the promise too.

An input is a function of its target, a seed and a number, and can be made again from them.
"""
