"""Record batches to Arrow columns, without a Python object per record.

    batches    what of an answer may be shown: checked, aborted transactions and markers left out
    arena      records of many batches, unpacked and laid end to end in one buffer
    walking    where each record ends: the one loop over records, compiled where it can be
    fields     every field of every record at once, with numpy, each length checked
    headers    the same for record headers
    gathering  scattered fields into one Arrow column
    columns    all columns of an arena
    exact      the same columns record by record, for what the fast way does not settle
    rows       columns from Python objects, for `exact` and for the reader on librdkafka

A record says how long it is, so finding the records is a chain of steps that cannot be taken at
once; `walking` takes them. All the rest can: once the ends are known, field after field is read
for all records together.

      arena   │len│a│ts│off│klen│ key │vlen│ value │hcount│len│a│ts│off│klen│ key │vlen│ value │hcount│…
      ends                                                ^                                          ^
      keys                      ├─────┤                                      ├─────┤
      values                               ├───────┤                                  ├───────┤

The columns of bytes are made without a loop as well. The arena is taken as one Arrow column whose
elements are by turns a field and what lies between two fields; `take` of every second element
copies the fields and drops the rest.

The fast way judges by comparing: where anything is not as it must be, or is only unusual (a varint
longer than it need be, a header that is not UTF-8), it makes no statement and `exact` reads the
batches again with `penstock.core.records`. So there is one place that says what is wrong with a
record, and the two ways give the same columns.

`NATIVE` says whether `walking` runs compiled (`make native`) or as Python.

Left out: message formats before magic 2.
"""

from penstock.pipeline.reading.decoding import walking
from penstock.pipeline.reading.decoding.batches import shown_batches
from penstock.pipeline.reading.decoding.columns import arrow_batches

NATIVE = not (walking.__file__ or "").endswith(".py")

__all__ = ["shown_batches", "arrow_batches", "NATIVE"]
