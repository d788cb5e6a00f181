"""Sparse indexes of a segment: from an offset or a time to a place in the file.

An index is a shortcut and never the truth: it can be rebuilt from its segment, and where
it leads is checked against the batch found there. Rows are machine words, so a sealed
index is used where it is mapped, without decoding.

    rows     the shape of the three tables, their bytes, the footer of a sealed file
    active   the tables of the segment that grows, in memory; written behind, at checkpoints
    sealed   the tables of a segment that is full, mapped when first needed

Left out: dense indexes. One row per few kilobytes keeps an index of a gigabyte at 2 MB,
and the scan from row to batch within one page.
"""
