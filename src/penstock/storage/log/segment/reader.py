"""A segment file for reading, opened when first used and closed when nobody refers to it."""

from penstock.storage.disk import Buffer, Disk, File


class SegmentReader:
    """Lent out in file ranges, so it must outlive the segment's place in the log.

    Whoever holds a range holds this reader, and the disk keeps the file of an open reader
    readable when its name is removed.
    """

    __slots__ = ("_disk", "_file", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None

    @property
    def path(self) -> str:
        return self._path

    def opened(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._path, readonly=True)
        return file

    # The file is asked for without a call where it is open: readers at the tail come by all the time.

    def pread(self, position: int, length: int) -> bytes:
        return (self._file or self.opened()).pread(position, length)

    def is_warm(self, position: int, length: int) -> bool:
        return (self._file or self.opened()).is_warm(position, length)

    def size(self) -> int:
        return self.opened().size()

    def map_readonly(self) -> memoryview:
        return self.opened().map_readonly()

    def fileno(self) -> int:
        return (self._file or self.opened()).fileno()

    def sync(self) -> None:
        self.opened().sync()

    def append(self, *buffers: Buffer) -> int:
        return self.opened().append(*buffers)

    def pwrite(self, position: int, data: Buffer) -> None:
        self.opened().pwrite(position, data)

    def truncate(self, size: int) -> None:
        self.opened().truncate(size)

    def allocate(self, size: int) -> None:
        self.opened().allocate(size)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __del__(self) -> None:
        self.close()
