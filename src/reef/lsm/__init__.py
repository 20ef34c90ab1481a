"""The tree: how log, manifests and segments become one readable, writable, self-tidying whole.

Owns the memtable, views, the newest-wins merge, the commit protocol, folding, compaction,
collection, time travel and recovery. Relies on the three codecs below and on the store.
The invariant: what a commit acknowledged, every later view shows, until something newer hides it
or the retention has passed; planners are pure, and only publications change what is visible.
"""
