"""What generated code looks like: flat, few calls, and complete as a text."""

from penstock.core.protocol.generator import decoder_source, encoder_source, gap_encoder_source
from penstock.core.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.core.protocol.messages.produce import ProduceRequest


def test_neighbouring_fixed_width_fields_are_one_struct_call() -> None:
    source = decoder_source(FetchRequest, 11)

    assert "unpack_iiiibiii = " in source
    assert source.count("def ") == 1


def test_records_are_a_view_into_the_frame() -> None:
    source = decoder_source(ProduceRequest, 9)

    assert "= view[p:" in source
    assert "bytes(b[" not in source


def test_the_text_is_a_module_that_stands_alone() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=2, topics=())
    writing: dict[str, object] = {}
    reading: dict[str, object] = {}

    exec(encoder_source(FetchRequest, 17), writing)
    exec(decoder_source(FetchRequest, 17), reading)
    out = bytearray()
    writing["encode"](request, out)  # type: ignore[operator]

    assert reading["decode"](bytes(out), 0) == (request, len(out))  # type: ignore[operator]


def test_the_form_with_gaps_differs_from_the_plain_one_in_what_becomes_of_records() -> None:
    plain, gaps = encoder_source(FetchResponse, 12), gap_encoder_source(FetchResponse, 12)

    assert "pieces" not in plain
    assert "pieces += (w, " in gaps
