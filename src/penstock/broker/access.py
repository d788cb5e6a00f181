"""Access rules, credentials, API keys and quotas as clients manage them."""

from collections.abc import Callable, Sequence
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
from penstock.runtime import Runtime
from penstock.security.key_uses import ApiKeyUses

FILTERS_PER_COMMAND = 10
Altered: TypeAlias = Callable[[list[Ok | ApiError]], None]


class AccessService:
    """Changes go to the controller; what is shown is what this node knows to be committed."""

    def __init__(self, runtime: Runtime, controller: Controller, key_uses: ApiKeyUses | None = None) -> None:
        self.key_uses = key_uses or ApiKeyUses(runtime.clock)
        self._runtime = runtime
        self._controller = controller
        self._commands = CommandQueue(runtime, controller)

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    def create_acls(self, acls: Sequence[AclBinding], done: Altered) -> None:
        """Add access rules, each on its own."""
        collector = ReplyCollector(self._runtime, Ok, len(acls), done)
        self._commands.submit((CreateAcls((acl,)), collector.slot(index)) for index, acl in enumerate(acls))

    def delete_acls(
        self, filters: Sequence[AclFilter], done: Callable[[DeletedAcls | ApiError], None]
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

        collector = ReplyCollector(self._runtime, DeletedAcls, len(portions), deleted)
        self._commands.submit(
            (DeleteAcls(tuple(portion)), collector.slot(index)) for index, portion in enumerate(portions)
        )

    def acls(self, wanted: AclFilter) -> list[AclBinding]:
        """The rules that a filter takes, sorted."""
        return [acl for acl in self.image.acls.keys() if wanted.takes(acl)]  # noqa: SIM118 - it is no dictionary

    def alter_credentials(self, changes: Sequence[AlterScramCredentials], done: Altered) -> None:
        """Set and remove passwords, each user on its own."""
        collector = ReplyCollector(self._runtime, Ok, len(changes), done)
        self._commands.submit((change, collector.slot(index)) for index, change in enumerate(changes))

    def credentials(self) -> dict[str, list[ScramCredential]]:
        """What is kept of each user's password, users in order."""
        found: dict[str, list[ScramCredential]] = {}
        for (user, _), credential in self.image.credentials.items():
            found.setdefault(user, []).append(credential)
        return found

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return self.image.credentials.get((user, mechanism))

    def alter_quotas(self, changes: Sequence[AlterClientQuotas], done: Altered) -> None:
        """Set and remove limits, each entity on its own."""
        collector = ReplyCollector(self._runtime, Ok, len(changes), done)
        self._commands.submit((change, collector.slot(index)) for index, change in enumerate(changes))

    def quotas(self) -> list[tuple[QuotaEntity, dict[str, float]]]:
        """The limits of every entity that has some."""
        return [(entity_of(key), dict(limits)) for key, limits in self.image.quotas.items()]

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

    def _submit_one(
        self,
        command: CreateApiKey | DeleteApiKey | SetDelegationSecret,
        done: Callable[[Ok | ApiError], None],
    ) -> None:
        def replied(reply: Reply) -> None:
            assert isinstance(reply, Ok | ApiError)
            done(reply)

        self._controller.submit(command, replied)
