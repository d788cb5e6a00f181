"""What `valueFormat` and its companions ask for."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pipeline.errors import BadOption
from penstock.pipeline.settings import choice_option, integer_option, option

JSON, AVRO, RAW = "json", "avro", "raw"
INFER = "infer"
PLAIN, CONFLUENT = "none", "confluent"
SAMPLE_RECORDS = 1_000
KNOWN = {
    "valueformat", "valueschema", "valueschemalocation", "valuesamplerecords", "valuetimestampunit",
    "valueframing",
}  # fmt: skip
_UNIT_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


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
        raise BadOption(unknown[0], "is not known")
    kind = choice_option(options, "valueFormat", (RAW, JSON, AVRO), RAW)
    if kind == RAW:
        beside = [name for name in given if name.lower() != "valueformat"]
        if beside:
            raise BadOption(beside[0], "has no meaning without valueFormat")
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
            raise BadOption("valueSchema", "is required with valueFormat avro: the writer's schema as JSON")
        if found.location is not None:
            raise BadOption("valueSchemaLocation", "has no meaning with valueFormat avro")
        return
    if found.framing != PLAIN:
        raise BadOption("valueFraming", "has no meaning with valueFormat json")
    if found.schema is None and found.location is None:
        raise BadOption(
            "valueSchema",
            "is required: columns as DDL, or valueSchemaLocation for inferred ones to be kept,"
            " or infer to look at the topic anew each time",
        )
    if found.schema is not None and found.location is not None:
        raise BadOption("valueSchemaLocation", "has no meaning beside valueSchema")
