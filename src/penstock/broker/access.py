"""Access rules, credentials, API keys and quotas as clients manage them.

Who may do what is acknowledged when it counts on every live broker (`live_brokers_barrier`): a key that was
made is one at any node, and a right that was taken away is gone everywhere.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from penstock.broker.cluster import Controller
from penstock.broker.topics import CommandQueue, ReplyCollector
from penstock.core.metadata import MetadataImage, Ok, Reply
from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    ApiKey,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
    entity_of,
)
from penstock.core.metadata.commands import (
    AddFirstAdministrator,
    AlterClientQuotas,
    AlterScramCredentials,
    CreateAcls,
    CreateApiKey,
    DeleteAcls,
    DeleteApiKey,
    DeletedAcls,
    SetDelegationSecret,
)
from penstock.core.model import ApiError
from penstock.runtime import Callback, Runtime
from penstock.runtime.fair_queue import Account
from penstock.runtime.sliced_work import NODE_ACCOUNT, SlicedWork
from penstock.security.key_uses import ApiKeyUses

FILTERS_PER_COMMAND = 10
# Rules that are looked at in one step.
ROWS_PER_STEP = 16
# Calls back once what is committed counts everywhere.
Barrier: TypeAlias = Callable[[Callback], None]
Altered: TypeAlias = Callable[[list[Ok | ApiError]], None]


def _at_once(done: Callback) -> None:
    """There are no other brokers."""
    done()


class AccessService:
    """Changes go to the controller; what is shown is what this node knows to be committed."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        key_uses: ApiKeyUses | None = None,
        everywhere: Barrier = _at_once,
        work: SlicedWork | None = None,
    ) -> None:
        self.key_uses = key_uses or ApiKeyUses(runtime.clock)
        self._runtime = runtime
        self._controller = controller
        self._everywhere = everywhere
        self._commands = CommandQueue(runtime, controller, work)

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    def create_acls(self, acls: Sequence[AclBinding], done: Altered, account: Account = NODE_ACCOUNT) -> None:
        """Add access rules, each on its own."""
        collector = ReplyCollector(self._runtime, Ok, len(acls), done, settle=self._everywhere)
        commands = ((CreateAcls((acl,)), collector.slot(index)) for index, acl in enumerate(acls))
        self._commands.submit(commands, account)

    def delete_acls(
        self,
        filters: Sequence[AclFilter],
        done: Callable[[DeletedAcls | ApiError], None],
        account: Account = NODE_ACCOUNT,
    ) -> None:
        """Remove every rule that one of the filters takes."""
        # Each is compared with every rule: so one command has few of them.
        portions = [
            filters[at : at + FILTERS_PER_COMMAND] for at in range(0, len(filters), FILTERS_PER_COMMAND)
        ]

        def deleted(replies: list[DeletedAcls | ApiError]) -> None:
            error = next((reply for reply in replies if isinstance(reply, ApiError)), None)
            taken = [each for reply in replies if isinstance(reply, DeletedAcls) for each in reply.by_filter]
            done(DeletedAcls(tuple(taken)) if error is None else error)

        collector = ReplyCollector(
            self._runtime, DeletedAcls, len(portions), deleted, settle=self._everywhere
        )
        commands = (
            (DeleteAcls(tuple(portion)), collector.slot(index)) for index, portion in enumerate(portions)
        )
        self._commands.submit(commands, account)

    def acls(self, wanted: AclFilter) -> Generator[None, None, list[AclBinding]]:
        """The rules that a filter takes, sorted; in steps, since there may be a hundred thousand."""
        found: list[AclBinding] = []
        rules = yield from self.image.acls.items_in_steps()
        for count, (acl, _) in enumerate(rules):
            if wanted.takes(acl):
                found.append(acl)
            if count % ROWS_PER_STEP == 0:
                yield
        return found

    def alter_credentials(
        self, changes: Sequence[AlterScramCredentials], done: Altered, account: Account = NODE_ACCOUNT
    ) -> None:
        """Set and remove passwords, each user on its own."""
        collector = ReplyCollector(self._runtime, Ok, len(changes), done, settle=self._everywhere)
        commands = ((change, collector.slot(index)) for index, change in enumerate(changes))
        self._commands.submit(commands, account)

    def credentials(self) -> dict[str, list[ScramCredential]]:
        """What is kept of each user's password, users in order."""
        found: dict[str, list[ScramCredential]] = {}
        for (user, _), credential in self.image.credentials.items():
            found.setdefault(user, []).append(credential)
        return found

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.image.credentials.get((user, mechanism))

    def alter_quotas(
        self, changes: Sequence[AlterClientQuotas], done: Altered, account: Account = NODE_ACCOUNT
    ) -> None:
        """Set and remove limits, each entity on its own."""
        collector = ReplyCollector(self._runtime, Ok, len(changes), done)
        commands = ((change, collector.slot(index)) for index, change in enumerate(changes))
        self._commands.submit(commands, account)

    def quotas(self) -> Generator[None, None, Iterator[tuple[QuotaEntity, dict[str, float]]]]:
        """The limits of every entity that has some; sorted in steps."""
        stored = yield from self.image.quotas.items_in_steps()
        return ((entity_of(key), dict(limits)) for key, limits in stored)

    def api_keys(self) -> list[ApiKey]:
        """Every API key, in the order of their ids."""
        return list(self.image.api_keys.values())

    def create_api_key(self, api_key: ApiKey, done: Callable[[Ok | ApiError], None]) -> None:
        self._submit_one(CreateApiKey(api_key), done)

    def delete_api_key(self, id_: str, done: Callable[[Ok | ApiError], None]) -> None:
        self._submit_one(DeleteApiKey(id_), done)

    def set_delegation_secret(self, secret: bytes, done: Callable[[Ok | ApiError], None]) -> None:
        """Let nodes sign with this, unless they have a secret already."""
        self._submit_one(SetDelegationSecret(secret), done)

    def add_first_administrator(
        self, command: AddFirstAdministrator, done: Callable[[Ok | ApiError], None]
    ) -> None:
        """Add a user who may do everything to a cluster that has no users."""
        self._submit_one(command, done)

    def _submit_one(
        self,
        command: CreateApiKey | DeleteApiKey | SetDelegationSecret | AddFirstAdministrator,
        done: Callable[[Ok | ApiError], None],
    ) -> None:
        def replied(reply: Reply) -> None:
            assert isinstance(reply, Ok | ApiError)
            if isinstance(reply, Ok):
                self._everywhere(partial(done, reply))
            else:
                done(reply)

        self._controller.submit(command, replied)
