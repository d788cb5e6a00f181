"""Changing access rules, credentials, API keys and client quotas."""

import math
from ipaddress import ip_address

from msgspec import structs

from penstock.core.ip_address import canonical_address
from penstock.core.metadata.access import (
    ANY_HOST,
    CLIENT_ID,
    CLUSTER_NAME,
    IP,
    IP_QUOTA_KEYS,
    QUOTA_KEYS,
    USER,
    AclBinding,
    PatternType,
    QuotaEntity,
    ResourceType,
    ScramCredential,
    ScramMechanism,
    entity_key,
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
    Ok,
    SetDelegationSecret,
)
from penstock.core.metadata.decision import ControllerConfig, MetadataDecision, error_decision
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.records import (
    AclCreated,
    AclDeleted,
    ApiKeyRemoved,
    ApiKeySet,
    DelegationSecretSet,
    Fact,
    QuotaRemoved,
    QuotaSet,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from penstock.core.model import Decision, ErrorKind

NAME_CHARS_MAX = 500
DESCRIPTION_CHARS_MAX = 1_000
SALT_BYTES_MAX = 1_024
# Of SHA-256.
DIGEST_BYTES = 32
# Kafka's limits: fewer are quickly guessed, more keep every broker busy with each login.
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
_ENTITY_TYPES = ((USER,), (CLIENT_ID,), (CLIENT_ID, USER), (IP,))


def create_acls(image: MetadataImage, command: CreateAcls, around: ControllerConfig) -> MetadataDecision:
    for acl in command.acls:
        problem = problem_with_acl(acl)
        if problem is not None:
            return error_decision(ErrorKind.INVALID_ACL, problem)
    acls = (structs.replace(acl, host=canonical_address(acl.host)) for acl in command.acls)
    added = tuple(acl for acl in dict.fromkeys(acls) if acl not in image.acls)
    if len(image.acls) + len(added) > around.acls_max:
        return error_decision(ErrorKind.ACCESS_LIMIT, f"a cluster has {around.acls_max} access rules at most")
    return Decision(tuple(map(AclCreated, added)), Ok())


def problem_with_acl(acl: AclBinding) -> str | None:
    """What is wrong with an access rule."""
    kind, _, name = acl.principal.partition(":")
    if not kind or not name:
        return f"{acl.principal!r} is no principal: it has the form User:alice"
    if not acl.name:
        return "a rule needs the name of a resource, * for all"
    if max(map(len, (acl.name, acl.principal, acl.host))) > NAME_CHARS_MAX:
        return f"a name is longer than {NAME_CHARS_MAX} characters"
    if acl.resource is ResourceType.CLUSTER and (acl.name, acl.pattern) != (
        CLUSTER_NAME,
        PatternType.LITERAL,
    ):
        return f"the only resource of type CLUSTER is {CLUSTER_NAME}, as a literal"
    if acl.host != ANY_HOST and not _is_address(acl.host):
        return f"{acl.host!r} is no IP address, and not *"
    return None


def delete_acls(image: MetadataImage, command: DeleteAcls) -> MetadataDecision:
    left = image.acls.keys()
    by_filter: list[tuple[AclBinding, ...]] = []
    for each in command.filters:
        taken = tuple(acl for acl in left if each.takes(acl))
        by_filter.append(taken)
        if taken:
            left = [acl for acl in left if not each.takes(acl)]
    facts = tuple(AclDeleted(acl) for taken in by_filter for acl in taken)
    return Decision(facts, DeletedAcls(tuple(by_filter)))


def alter_scram_credentials(
    image: MetadataImage, command: AlterScramCredentials, around: ControllerConfig
) -> MetadataDecision:
    mechanisms = [credential.mechanism for credential in command.added] + list(command.removed)
    if not command.user or len(command.user) > NAME_CHARS_MAX:
        return error_decision(
            ErrorKind.INVALID_CREDENTIAL, f"a user's name has 1 to {NAME_CHARS_MAX} characters"
        )
    if len(mechanisms) != len(dict.fromkeys(mechanisms)):
        return error_decision(ErrorKind.INVALID_REQUEST, "a mechanism is changed more than once")
    for credential in command.added:
        problem = _problem_with_credential(command.user, credential)
        if problem is not None:
            return error_decision(ErrorKind.INVALID_CREDENTIAL, problem)
    for mechanism in command.removed:
        if (command.user, mechanism) not in image.credentials:
            return error_decision(
                ErrorKind.UNKNOWN_CREDENTIAL, f"{command.user} has no {mechanism.sasl_name} credential"
            )
    if command.added and len(image.credentials) >= around.credentials_max:
        return error_decision(
            ErrorKind.ACCESS_LIMIT, f"a cluster has {around.credentials_max} credentials at most"
        )
    facts: list[Fact] = [ScramCredentialRemoved(command.user, each) for each in command.removed]
    facts += [ScramCredentialSet(credential) for credential in command.added]
    return Decision((*facts, *_keys_that_go(image, command)), Ok())


def _keys_that_go(image: MetadataImage, command: AlterScramCredentials) -> list[Fact]:
    """With its last password a user is gone, and so is what stands for it."""
    left = [each for each in ScramMechanism if each not in command.removed]
    stays = command.added or any((command.user, each) in image.credentials for each in left)
    if stays or not command.removed:
        return []
    return [ApiKeyRemoved(key.id) for key in image.api_keys.values() if key.user == command.user]


def _problem_with_credential(user: str, credential: ScramCredential) -> str | None:
    mechanism = credential.mechanism
    if credential.user != user:
        return "the credential is for another user"
    if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
        return f"{credential.iterations} iterations are outside {ITERATIONS_MIN} to {ITERATIONS_MAX}"
    if not 0 < len(credential.salt) <= SALT_BYTES_MAX:
        return f"a salt has 1 to {SALT_BYTES_MAX} bytes"
    if {len(credential.stored_key), len(credential.server_key)} != {mechanism.key_bytes}:
        return f"keys of {mechanism.sasl_name} have {mechanism.key_bytes} bytes"
    return None


def create_api_key(image: MetadataImage, command: CreateApiKey, around: ControllerConfig) -> MetadataDecision:
    api_key = command.api_key
    if not api_key.user or len(api_key.user) > NAME_CHARS_MAX or len(api_key.digest) != DIGEST_BYTES:
        return error_decision(ErrorKind.INVALID_CREDENTIAL, "an API key needs a user and a SHA-256")
    if len(api_key.description) > DESCRIPTION_CHARS_MAX:
        return error_decision(
            ErrorKind.INVALID_REQUEST, f"a description has {DESCRIPTION_CHARS_MAX} characters at most"
        )
    if not api_key.id or api_key.id in image.api_keys:
        return error_decision(ErrorKind.INVALID_REQUEST, f"the id {api_key.id!r} is empty, or in use")
    if len(image.api_keys) >= around.api_keys_max:
        return error_decision(ErrorKind.ACCESS_LIMIT, f"a cluster has {around.api_keys_max} API keys at most")
    return Decision((ApiKeySet(api_key),), Ok())


def delete_api_key(image: MetadataImage, command: DeleteApiKey) -> MetadataDecision:
    if command.id not in image.api_keys:
        return error_decision(ErrorKind.UNKNOWN_API_KEY, f"there is no API key {command.id!r}")
    return Decision((ApiKeyRemoved(command.id),), Ok())


def set_delegation_secret(image: MetadataImage, command: SetDelegationSecret) -> MetadataDecision:
    """Every node of a secured cluster asks for this when it finds no secret: the first one counts."""
    if len(command.secret) != DIGEST_BYTES:
        return error_decision(ErrorKind.INVALID_CREDENTIAL, f"the secret of nodes has {DIGEST_BYTES} bytes")
    return Decision(() if image.delegation_secret else (DelegationSecretSet(command.secret),), Ok())


def add_first_administrator(
    image: MetadataImage, command: AddFirstAdministrator, around: ControllerConfig
) -> MetadataDecision:
    """Whoever owns a node's data directory asks for this: it must open no cluster that is in use."""
    if image.credentials or image.acls or image.api_keys:
        return error_decision(
            ErrorKind.INVALID_REQUEST,
            "the cluster has users, access rules or API keys already: its administrator adds others",
        )
    if not command.credentials:
        return error_decision(ErrorKind.INVALID_CREDENTIAL, "the first administrator needs a password")
    user = alter_scram_credentials(image, AlterScramCredentials(command.user, command.credentials), around)
    if not isinstance(user.reply, Ok):
        return user
    rules = create_acls(image, CreateAcls(command.acls), around)
    return Decision((*user.facts, *rules.facts), Ok()) if isinstance(rules.reply, Ok) else rules


def alter_client_quotas(
    image: MetadataImage, command: AlterClientQuotas, around: ControllerConfig
) -> MetadataDecision:
    entity: QuotaEntity = tuple(sorted(command.entity, key=lambda part: part[0]))
    if image.quotas.get(entity_key(entity)) is None:
        # Else it was stored before addresses were written in one way, and counts as it is.
        entity = tuple((kind, _canonical_name(kind, name)) for kind, name in entity)
    problem = problem_with_quotas(entity, command.limits)
    if problem is not None:
        return error_decision(ErrorKind.INVALID_REQUEST, problem)
    known = image.quotas.get(entity_key(entity))
    if known is None and len(image.quotas) >= around.quota_entities_max:
        detail = f"a cluster has quotas for {around.quota_entities_max} entities at most"
        return error_decision(ErrorKind.ACCESS_LIMIT, detail)
    facts: list[Fact] = []
    for key, value in command.limits:
        if value is not None:
            facts.append(QuotaSet(entity, key, value))
        elif known is not None and key in known:
            facts.append(QuotaRemoved(entity, key))
    return Decision(() if command.validate_only else tuple(facts), Ok())


def problem_with_quotas(entity: QuotaEntity, limits: tuple[tuple[str, float | None], ...]) -> str | None:
    """What is wrong with limits of an entity, whose parts are in the order of their types."""
    types = tuple(kind for kind, _ in entity)
    if types not in _ENTITY_TYPES:
        return "limits are for a user, a client id, both, or an address"
    for kind, name in entity:
        if name is not None and not 0 < len(name) <= NAME_CHARS_MAX:
            return f"a name has 1 to {NAME_CHARS_MAX} characters"
        if kind == IP and name is not None and not _is_address(name):
            return f"{name!r} is no IP address"
    return _problem_with_limits(IP_QUOTA_KEYS if types == (IP,) else QUOTA_KEYS, limits)


def _canonical_name(kind: str, name: str | None) -> str | None:
    return canonical_address(name) if kind == IP and name is not None else name


def _problem_with_limits(known: tuple[str, ...], limits: tuple[tuple[str, float | None], ...]) -> str | None:
    keys = [key for key, _ in limits]
    if len(keys) != len(dict.fromkeys(keys)):
        return "a limit is changed more than once"
    for key, value in limits:
        if key not in known:
            return f"{key!r} is no limit for this: there are {', '.join(known)}"
        if value is not None and not (math.isfinite(value) and value > 0):
            return f"{key} is a number above 0"
    return None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
