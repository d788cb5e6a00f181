"""Values decoded into columns: `valueFormat` = json or avro.

    value_decoder   the options, and a batch of a topic with its values decoded
    schema          columns as DDL text and as Arrow types; inferred from a sample, and kept in a file
    json            JSON objects as typed structs, decoded by msgspec
    avro            Avro records, decoded by fastavro
    arrow           decoded records as Arrow columns

    value (binary) ──> value (struct of the columns), _error (string), _raw (binary)

Everything else of a record stays where it is: key, topic, partition, offset, timestamp. The
columns are in a struct, so that a field called `timestamp` does not hide the record's; `value.*`
spreads them out. A value that cannot be decoded is null, with the reason in `_error` and its
bytes in `_raw`; both are null otherwise. A null value (a tombstone) is null and no error.

    columns(options, sample) -> StructType
        the columns of `value`; `sample(n)` is asked for n values only if they must be inferred
    decoded_schema(schema, columns) -> StructType
        a topic's columns with these in `value`, and `_error` and `_raw`: the schema for Spark
    decoder(options, schema) -> Callable[[RecordBatch], RecordBatch]
        for tasks: batches as `reading` makes them in, batches of `schema` out

JSON is taken strictly. A value is one object in UTF-8; fields that are not in the columns are
left alone, missing ones are null, and of a key that comes twice the last one counts. A number
with a fraction is no integer, a number is no string, and one that does not fit its type is an
error, not a null. Timestamps are RFC 3339 text, UTC where no offset is given, or numbers since
1970 in `valueTimestampUnit`. All values of a batch are decoded in one go; if one of them fails,
each is decoded alone, by the same decoder.

pyarrow's own JSON reader is not used: it reads no objects as maps, and took longer on metrics.

Left out: Protobuf, schema registries (a Confluent frame is stripped, not looked up), and places
for pinned columns that are no file system.
"""

from penstock.spark.formats.value_decoder import (
    FormatOptions,
    columns,
    decoded_schema,
    decoder,
    format_options,
    is_decoded,
)

__all__ = ["columns", "decoded_schema", "decoder", "is_decoded", "FormatOptions", "format_options"]
