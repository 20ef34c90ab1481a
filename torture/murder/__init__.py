"""Murder: real processes on a real store, killed with SIGKILL at random and at named points.

Writers, bulk loaders, indexers, compactors, collectors and readers share one namespace. Before each
write its process tells the witness what it is about to write, and afterwards what came of it; the
witness, another process, alone decides what counts as acknowledged. Whatever anybody reads is told
to it as well, and has to be a state that the acknowledgements allow.
"""
