"""Damage: every object of small namespaces injured in every way, one at a time.

Each case is harmless, or is found by reading and by `verify`, and is never a wrong answer; and
`repair` then leaves a namespace that is sound and has lost only what its report says.
"""
