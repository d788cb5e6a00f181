"""The echo server: every request is durable before it is answered, and written once."""

from penstock.core.model import ProtocolError, StorageError
from penstock.runtime import Address, Callback, Ending, Identity, Link, Runtime
from penstock.simulation.echo.messages import (
    ANSWER,
    REQUEST,
    Entry,
    read_entries,
    read_message,
    write_entry,
    write_message,
)
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk, File

FILE = "echo/requests"


class DurableEcho:
    """Appends requests to a file, syncs in groups, answers after the sync.

    A request id is written once, however often it arrives and however often the server
    crashes between. Links come and go: an answer goes to the link that asked last.
    """

    def __init__(self, runtime: Runtime, disk: Disk, address: Address) -> None:
        self._runtime = runtime
        self._commit = GroupCommit(runtime.sync)
        self._waiting: dict[bytes, tuple[Link, bytes]] = {}  # not durable yet
        self._stopped: Callback | None = None
        self._file, self._durable = self._recover(disk)
        self._listener = runtime.transport.listen(address, self)

    @property
    def address(self) -> Address:
        return self._listener.address

    def _recover(self, disk: Disk) -> tuple[File, dict[bytes, None]]:
        """Cut a torn tail and make sure that what is left is durable.

        What is read back may be in the page cache only: the process was killed, or a sync
        failed, which leaves pages that look clean and are on no disk. Writing them again is
        what makes a sync mean something.
        """
        disk.make_directory("echo")
        file = disk.open(FILE, create=True)
        content = file.pread(0, file.size())
        entries, good = read_entries(content)
        file.truncate(good)
        file.pwrite(0, content[:good])
        file.sync()
        disk.sync_directory("echo")
        disk.sync_directory("")
        return file, {entry.request_id: None for entry in entries}

    def opened(self, link: Link, peer: Identity) -> None:
        """Who asks does not matter here."""

    def drained(self, link: Link) -> None:
        """An answer that was turned away is asked for again."""

    def closed(self, link: Link, ending: Ending) -> None:
        """An answer to a link that is over goes nowhere, and is asked for again."""

    def received(self, link: Link, frame: bytes) -> None:
        try:
            kind, request_id, payload = read_message(frame)
        except ProtocolError:
            link.close()
            return
        if kind != REQUEST or self._stopped is not None:
            return
        if request_id in self._durable:
            self._answer(link, request_id, payload)
        elif request_id in self._waiting:
            self._waiting[request_id] = (link, payload)
        else:
            self._write(link, Entry(request_id, payload))

    def _write(self, link: Link, entry: Entry) -> None:
        self._file.append(write_entry(entry))
        self._waiting[entry.request_id] = (link, entry.payload)
        self._commit.request(self._file, lambda failure: self._synced(entry.request_id, failure))

    def _synced(self, request_id: bytes, failure: StorageError | None) -> None:
        if failure is not None:
            # Nobody knows what is on disk now; the next life finds out.
            raise failure
        self._durable[request_id] = None
        link, payload = self._waiting.pop(request_id)
        self._answer(link, request_id, payload)
        if self._stopped is not None and not self._waiting:
            self._finish()

    def _answer(self, link: Link, request_id: bytes, payload: bytes) -> None:
        link.send(write_message(ANSWER, request_id, payload))

    def stop(self, done: Callback) -> None:
        """Take no more requests, answer those that are written, and close the file."""
        self._stopped = done
        self._listener.close()
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        self._file.close()
        assert self._stopped is not None
        self._runtime.timers.soon(self._stopped)
