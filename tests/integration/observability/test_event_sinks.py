import contextlib
import os
import pty
from collections.abc import Iterator

import pytest

from penstock.observability import DescriptorSink


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):  # the test may have closed it itself
            os.close(end)


def test_lines_arrive_at_the_reader(pipe: tuple[int, int]) -> None:
    assert DescriptorSink(pipe[1]).write(b"hello\n")

    assert os.read(pipe[0], 100) == b"hello\n"


def test_a_reader_that_stopped_makes_lines_drop_instead_of_wait(pipe: tuple[int, int]) -> None:
    sink = DescriptorSink(pipe[1])

    taken = [sink.write(b"x" * 4095 + b"\n") for _ in range(100)]

    assert taken[0]
    assert not taken[-1]
    os.read(pipe[0], 1 << 20)
    assert sink.write(b"back\n")


def test_a_reader_that_left_is_not_an_exception(pipe: tuple[int, int]) -> None:
    sink = DescriptorSink(pipe[1])

    os.close(pipe[0])

    assert not sink.write(b"hello\n")


def test_a_closed_descriptor_is_not_an_exception(pipe: tuple[int, int]) -> None:
    sink = DescriptorSink(pipe[1])

    os.close(pipe[1])

    assert not sink.write(b"hello\n")


def test_a_terminal_is_told_from_a_pipe(pipe: tuple[int, int]) -> None:
    ours, theirs = pty.openpty()

    assert DescriptorSink(theirs).is_terminal
    assert not DescriptorSink(pipe[1]).is_terminal
    os.close(ours)
    os.close(theirs)
