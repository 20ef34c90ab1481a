"""Reading a tree: views of one moment, point reads, scans, the newest-wins merge, time travel."""
