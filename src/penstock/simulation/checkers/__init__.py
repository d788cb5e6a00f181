"""Judges: each looks at what clients saw and what is left on disk, and names what is wrong.

A checker knows one guarantee and nothing of how the run came about, so that the same
code judges simulated runs, clusters of processes and crash tests of a single node.
"""
