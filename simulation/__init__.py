"""Simulation: whole programs against a bucket that fails, under a scheduler that repeats.

Programs are ordinary blocking code over Reef's public interface. Each runs as a greenlet, all in
one thread, and gives way at every request to the bucket and at every sleep. A seed decides
everything: what programs do, how long requests take, what fails, who dies and when. An observer
that sees every object the moment it appears keeps a model, and every answer that a program gets
is held against it.
"""
