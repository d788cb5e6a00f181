"""Feeding every parser what nobody would send on purpose.

    make fuzz SECONDS=600
    python -m fuzz --target records.header --seed 7
    python -m fuzz --target records.header --replay build/fuzz/records.header.hex

A target names a parser, a maker of valid inputs and the errors that are its right.
The harness damages valid inputs and watches four things: that nothing but an allowed
error comes out, that no input takes more than two seconds of CPU, that Python's
allocations stay within a multiple of the input, and (a net for what Python does not
count) that the address space does not run away.

A module in `fuzz/targets` that exports `TARGETS` is found by itself. A short run of
every target with a fixed seed is part of the tests.

Left out: coverage guidance. Mutations know about lengths, counts and varints, which is
where parsers of this kind break, and inputs are cheap: some ten thousand per second.
"""
