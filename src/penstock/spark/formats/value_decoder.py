"""A batch of a topic with its values decoded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.kafka_options import choice_option, integer_option, option

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

JSON, AVRO, RAW_FORMAT = "json", "avro", "raw"
INFER = "infer"
PLAIN, CONFLUENT = "none", "confluent"
SAMPLE_RECORDS = 1_000
KNOWN = {
    "valueformat", "valueschema", "valueschemalocation", "valuesamplerecords", "valuetimestampunit",
    "valueframing",
}  # fmt: skip
_UNIT_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
VALUE, ERROR, RAW_COLUMN = "value", "_error", "_raw"
Sample = Callable[[int], Sequence[bytes | None]]
Decode = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How values are decoded, and where the columns come from."""

    format: str
    schema: str | None
    location: str | None
    sample_records: int
    timestamp_unit: str
    framing: str

    @property
    def unit_microseconds(self) -> int:
        """How many microseconds one of a numeric timestamp is."""
        return _UNIT_MICROSECONDS[self.timestamp_unit]


def format_options(options: Mapping[str, str]) -> FormatOptions | None:
    """None where values stay bytes."""
    given = sorted(name for name in options if name.lower().startswith("value"))
    unknown = [name for name in given if name.lower() not in KNOWN]
    if unknown:
        raise SparkOptionError(unknown[0], "is not known")
    kind = choice_option(options, "valueFormat", (RAW_FORMAT, JSON, AVRO), RAW_FORMAT)
    if kind == RAW_FORMAT:
        beside = [name for name in given if name.lower() != "valueformat"]
        if beside:
            raise SparkOptionError(beside[0], "has no meaning without valueFormat")
        return None
    found = FormatOptions(
        kind,
        option(options, "valueSchema"),
        option(options, "valueSchemaLocation"),
        integer_option(options, "valueSampleRecords", SAMPLE_RECORDS, 1),
        choice_option(options, "valueTimestampUnit", tuple(_UNIT_MICROSECONDS), "ms"),
        choice_option(options, "valueFraming", (PLAIN, CONFLUENT), PLAIN),
    )
    _check(found)
    return found


def _check(found: FormatOptions) -> None:
    if found.format == AVRO:
        if found.schema is None:
            raise SparkOptionError(
                "valueSchema", "is required with valueFormat avro: the writer's schema as JSON"
            )
        if found.location is not None:
            raise SparkOptionError("valueSchemaLocation", "has no meaning with valueFormat avro")
        return
    if found.framing != PLAIN:
        raise SparkOptionError("valueFraming", "has no meaning with valueFormat json")
    if found.schema is None and found.location is None:
        raise SparkOptionError(
            "valueSchema",
            "is required: columns as DDL, or valueSchemaLocation for inferred ones to be kept,"
            " or infer to look at the topic anew each time",
        )
    if found.schema is not None and found.location is not None:
        raise SparkOptionError("valueSchemaLocation", "has no meaning beside valueSchema")


def is_decoded(options: Mapping[str, str]) -> bool:
    """Whether these options ask for decoded values; SparkOptionError if they make no sense."""
    return format_options(options) is not None


def columns(options: Mapping[str, str], sample: Sample) -> "StructType":
    """The columns of `value`, for Spark; `sample(n)` is asked for values only if they must be inferred."""
    known = _known(options)
    if known.format == AVRO:
        from penstock.spark.formats.avro import avro_columns

        return avro_columns(known.schema or "")
    from penstock.spark.formats.schema import infer_columns, parse_ddl, pinned_columns

    if known.location is not None:
        return pinned_columns(known.location, lambda: infer_columns(sample(known.sample_records)))
    if known.schema is not None and known.schema.strip().lower() == INFER:
        return infer_columns(sample(known.sample_records))
    return parse_ddl(known.schema or "")


def decoded_schema(schema: "StructType", inside: "StructType") -> "StructType":
    """The columns of a topic with those of `value` inside, and those for values that cannot be decoded."""
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    fields = [StructField(VALUE, inside) if one.name == VALUE else one for one in schema]
    return StructType([*fields, StructField(ERROR, StringType()), StructField(RAW_COLUMN, BinaryType())])


def decoder(options: Mapping[str, str], schema: "StructType") -> "Callable[[pa.RecordBatch], pa.RecordBatch]":
    """What turns batches of a topic into batches of `schema`, in a task."""
    from penstock.spark.formats.arrow import ColumnBuilder, by_name, by_position
    from penstock.spark.formats.schema import arrow_type

    known = _known(options)
    inside: Any = schema[VALUE].dataType
    if known.format == AVRO:
        from penstock.spark.formats.avro import avro_decoder

        decode, fields = avro_decoder(known.schema or "", known.framing), by_name
    else:
        from penstock.spark.formats.json import json_decoder

        decode, fields = json_decoder(inside), by_position
    builder = ColumnBuilder(fields, known.unit_microseconds)
    return BatchDecoder(
        decode, builder, arrow_type(inside), schema.names, text=known.format != AVRO
    ).decode_batch


def _known(options: Mapping[str, str]) -> FormatOptions:
    known = format_options(options)
    if known is None:
        raise PipelineError("no valueFormat was asked for")
    return known


class BatchDecoder:
    """Decodes all values of a batch in one go, and one by one if that fails."""

    def __init__(
        self, decode: Decode, builder: Any, kind: "pa.StructType", names: Sequence[str], *, text: bool
    ) -> None:
        self._text = text
        self._decode = decode
        self._builder = builder
        self._kind = kind
        self._names = names

    def decode_batch(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The batch with `value` as a struct, and `_error` and `_raw` beside it."""
        import pyarrow as pa

        values = batch.column(VALUE)
        decoded = self._all(values)
        errors: list[str | None] = [None] * len(values)
        raws: list[bytes | None] = [None] * len(values)
        if decoded is None:
            decoded, errors, raws = self._each(values.to_pylist())
        made = {VALUE: decoded, ERROR: pa.array(errors, pa.string()), RAW_COLUMN: pa.array(raws, pa.binary())}
        arrays = [made[name] if name in made else batch.column(name) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._names))

    def _all(self, values: "pa.Array") -> "pa.Array | None":
        """All of them, or None if any is no good."""
        import pyarrow as pa

        from penstock.spark.formats.arrow import BUILD_ERRORS
        from penstock.spark.formats.json import DECODE_ERRORS

        decode = self._decode
        try:
            if self._text:
                # Of fields that nobody asked for, the decoder does not look at the bytes.
                values.cast(pa.string())
            cells = [None if value is None else decode(value) for value in values.to_pylist()]
            return self._builder.build(cells, self._kind)
        except (*DECODE_ERRORS, *BUILD_ERRORS):
            return None

    def _each(self, values: list[bytes | None]) -> "tuple[pa.Array, list[str | None], list[bytes | None]]":
        from penstock.spark.formats.arrow import BUILD_ERRORS
        from penstock.spark.formats.json import DECODE_ERRORS

        cells: list[Any] = [None] * len(values)
        errors: list[str | None] = [None] * len(values)
        for number, value in enumerate(values):
            if value is None:
                continue
            try:
                if self._text:
                    value.decode()
                cells[number] = self._decode(value)
            except DECODE_ERRORS as error:
                errors[number] = _one_line(error)
        try:
            built = self._builder.build(cells, self._kind)
        except BUILD_ERRORS:
            self._drop_misfits(cells, errors, 0, len(cells))
            built = self._builder.build(cells, self._kind)
        raws = [None if error is None else value for value, error in zip(values, errors, strict=True)]
        return built, errors, raws

    def _drop_misfits(self, cells: list[Any], errors: list[str | None], start: int, end: int) -> None:
        """Find, by halves, the records that no column takes; only building shows it, as with decimals."""
        from penstock.spark.formats.arrow import BUILD_ERRORS

        try:
            self._builder.build(cells[start:end], self._kind)
        except BUILD_ERRORS as error:
            if end - start == 1:
                cells[start], errors[start] = None, _one_line(error)
                return
            middle = (start + end) // 2
            self._drop_misfits(cells, errors, start, middle)
            self._drop_misfits(cells, errors, middle, end)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
