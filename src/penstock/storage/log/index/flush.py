"""Writing the tables of the active segment into their files."""

from penstock.core.model import StorageError
from penstock.storage.disk import Disk, File
from penstock.storage.log.index.active import ActiveIndex
from penstock.storage.log.index.rows import SHAPES, encode_words, footer
from penstock.storage.log.names import numbered


def flush(disk: Disk, directory: str, base_offset: int, index: ActiveIndex) -> list[File]:
    """Append the rows that are new; answers the files that were written, open and not yet synced."""
    return _write(disk, directory, base_offset, index, seal=False)


def seal(disk: Disk, directory: str, base_offset: int, index: ActiveIndex) -> list[File]:
    """Write all rows that are missing, and the footers."""
    return _write(disk, directory, base_offset, index, seal=True)


def _write(disk: Disk, directory: str, base_offset: int, index: ActiveIndex, *, seal: bool) -> list[File]:
    files: list[File] = []
    try:
        for number, words in enumerate((index.offsets, index.times, index.aborted)):
            shape = SHAPES[number]
            flushed, rows = index.flushed_rows[number], len(words) // shape.words
            if not seal and flushed == rows:
                continue
            file = disk.open(f"{directory}/{numbered(base_offset, shape.suffix)}", create=True)
            files.append(file)
            # Whatever else stands behind the rows that count: a footer from before a
            # truncation, or what a crash or a failed write left.
            if file.size() != flushed * shape.row_bytes:
                file.truncate(flushed * shape.row_bytes)
            content = encode_words(words[flushed * shape.words :])
            if seal:
                content += footer(shape, encode_words(words))
            file.append(content)
            if not seal:
                index.flushed_rows[number] = rows
    except StorageError:
        for file in files:
            file.close()
        raise
    return files
