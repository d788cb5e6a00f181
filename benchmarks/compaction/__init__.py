"""Compaction of a large topic that is written in transactions."""
