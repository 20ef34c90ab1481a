"""Every schedule of small scenarios, within bounds, on the real code.

A few programs run beside each other on a bucket that was prepared. Who makes the next request, and
what becomes of it, is a decision; a schedule is a list of those that differ from the default, which
is to go on. The search takes them all: at most two pre-emptions, an hour that passes, and one
fault. It replays from the start for each, and leaves off where it meets a state that it knows.
"""
