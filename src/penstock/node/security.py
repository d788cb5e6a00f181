"""What stands between a node's clients and its services: TLS, logins, access rules and quotas, put together.

Without security and without quotas there is no authorizer at all, so that a request costs what it did
before there was any. The first quota that somebody sets puts one there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.cluster import Controller
from penstock.broker.encryption import Rotated
from penstock.core.metadata import MetadataImage, Ok
from penstock.core.metadata.access import CLUSTER_NAME, AclOperation, ScramMechanism
from penstock.core.metadata.commands import AddFirstAdministrator, AlterScramCredentials
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, PenstockError
from penstock.core.sasl import credential_of
from penstock.node.http_gate import GatewayLogins, NodeHttpGate
from penstock.node.options import NodeOptions
from penstock.observability import log
from penstock.runtime import ExecutorKind, Runtime
from penstock.security.access_control import AccessControl
from penstock.security.acls import AclRules
from penstock.security.audit import AuditLog, AuditTopicWriter, NodeAudit
from penstock.security.audit.file import AuditFile
from penstock.security.authenticator import Authenticator
from penstock.security.callers import CallerAuthenticator
from penstock.security.delegations import Delegations
from penstock.security.first_administrator import FirstAdministratorFile, FirstAdministratorUnusable
from penstock.security.key_uses import ApiKeyUses
from penstock.security.options import (
    OAUTHBEARER,
    SASL_PROTOCOLS,
    TLS_PROTOCOLS,
    OAuthOptions,
    SecurityOptions,
    TlsOptions,
)
from penstock.security.private_files import read_private
from penstock.security.quotas import ClientQuotas
from penstock.server.kafka.backend import Backend
from penstock.server.kafka.listener import Listener, ListenerSecurity
from penstock.server.kafka.request_audit import RequestAudit

if TYPE_CHECKING:
    from penstock.security.oauth import JwtVerifier
    from penstock.security.tls_contexts import TlsContexts

# How often the files with certificates are looked at.
CERTIFICATE_CHECK_MS = 2_000
ADMIN_RETRY_MS = 1_000
# How often a running node looks for a first administrator that was left for it.
FIRST_ADMINISTRATOR_CHECK_MS = 1_000
UNUSABLE_CHECK_MS = 60_000
# What the controller says of one that it will never take.
FINAL = (ErrorKind.INVALID_REQUEST, ErrorKind.INVALID_CREDENTIAL, ErrorKind.INVALID_ACL)
SALT_BYTES = 16
MASTER_KEY, AGE = ("cluster", CLUSTER_NAME), "by security.encryption.rotation_interval_ms"
SECRET_BYTES = 32
ITERATIONS = 8_192
PASSWORD_CHARS_MAX = 1_000


class SecurityUnusable(PenstockError):
    """The security of a node cannot be set up; says why."""


class NodeSecurity:
    """The security of one node's listeners."""

    def __init__(
        self,
        runtime: Runtime,
        options: SecurityOptions,
        uses: ApiKeyUses,
        audit_log: AuditLog | None = None,
    ) -> None:
        self._runtime = runtime
        self._uses = uses
        self._options = options
        rules = None
        if options.enabled:
            names = frozenset(user if ":" in user else f"User:{user}" for user in options.super_users)
            rules = AclRules(names, open_without_rules=options.open_without_rules)
        self._quotas = ClientQuotas()
        self._control = AccessControl(rules, self._quotas, runtime.clock.now)
        self._tls = _tls_contexts(options.tls)
        self._tokens = _token_verifier(runtime, options.oauth)
        mechanisms = options.mechanisms
        if self._tokens is None:
            mechanisms = tuple(each for each in mechanisms if each != OAUTHBEARER)
        self._delegations = Delegations(runtime.clock)
        self._authenticator = Authenticator(runtime, mechanisms, self._tokens, self._delegations)
        self.node_audit = None if audit_log is None else NodeAudit(audit_log)
        self._callers = CallerAuthenticator(
            runtime,
            self._delegations,
            self._authenticator,
            self._tokens,
            self._tls,
            uses,
            audit=self.node_audit,
        )
        self._listeners: Sequence[Listener] = ()
        self.audit: RequestAudit | None = None
        if audit_log is not None and options.audit is not None:
            self.audit = RequestAudit(audit_log, with_data=options.audit.data)

    @property
    def authorizer(self) -> AccessControl | None:
        """None while everyone may do everything, as fast as it goes, and nothing is recorded."""
        is_needed = self._options.enabled or self.audit is not None or not self._quotas.is_empty
        return self._control if is_needed else None

    @property
    def tls(self) -> "TlsContexts | None":
        """The certificate of every server, if there is one."""
        return self._tls

    @property
    def http_gate(self) -> NodeHttpGate | None:
        """Whom the node's pages ask who is calling; None if they ask nobody."""
        if not self._options.enabled:
            return None
        return NodeHttpGate(self._callers, self._delegations, self._control, self.node_audit)

    def gateway_logins(self, token: str) -> GatewayLogins:
        """What answers the gateway that has this token."""
        return GatewayLogins(token, self._callers, self._delegations, self._uses)

    def listener(self, protocol: str) -> ListenerSecurity:
        """What clients of a listener with this protocol have to do."""
        has_sasl = protocol in SASL_PROTOCOLS
        return ListenerSecurity(
            self._tls if protocol in TLS_PROTOCOLS else None,
            self._authenticator if has_sasl or self._options.enabled else None,
            may_log_in=not has_sasl,
            reauthenticate_ms=self._options.reauthenticate_ms,
        )

    def follow(self, controller: Controller) -> None:
        """Follow the metadata and the files from now on."""
        self._on_metadata(controller.image)
        controller.subscribe(self._on_metadata)
        if self._tokens is not None:
            self._tokens.start()
        if self._tls is not None:
            self._check_certificates(self._tls)

    def start(self, backend: Backend, listeners: Sequence[Listener]) -> None:
        """Keep listeners in step with the metadata, and see to it that there is somebody who may log in."""
        self._listeners = listeners
        if self._options.admin_user:
            self._set_admin(backend)
        if self._options.enabled:
            self._set_secret(backend)
            if self._options.data_dir:
                file = FirstAdministratorFile(self._options.data_dir)
                if not (backend.access.image.credentials or file.is_there or self._has_other_logins):
                    log.warning("security.nobody_can_log_in", remedy="penstock user bootstrap USER")
                FirstAdministratorWatch(self._runtime, backend, file, self.node_audit).look()

    @property
    def _has_other_logins(self) -> bool:
        """Whether somebody may come who has no password here."""
        tls = self._options.tls
        has_certificates = tls is not None and tls.client_auth != "none"
        return bool(self._options.admin_user) or self._tokens is not None or has_certificates

    def _on_metadata(self, image: MetadataImage) -> None:
        before = self.authorizer
        self._control.on_metadata(image)
        self._authenticator.on_metadata(image)
        self._delegations.on_metadata(image)
        if self.authorizer is not before:
            for listener in self._listeners:
                listener.set_authorizer(self.authorizer)

    def _check_certificates(self, tls: "TlsContexts") -> None:
        tls.check()
        due = Instant(self._runtime.clock.now() + CERTIFICATE_CHECK_MS * MILLISECOND)
        self._runtime.timers.at(due, partial(self._check_certificates, tls))

    def _set_secret(self, backend: Backend) -> None:
        """Give the cluster what its nodes sign with, unless it has that."""
        if self._delegations.has_secret:
            return

        def done(reply: Ok | ApiError) -> None:
            if isinstance(reply, ApiError):
                log.warning("security.secret_not_set", reason=str(reply))
                due = Instant(self._runtime.clock.now() + ADMIN_RETRY_MS * MILLISECOND)
                self._runtime.timers.at(due, partial(self._set_secret, backend))

        backend.access.set_delegation_secret(self._runtime.entropy.bytes(SECRET_BYTES), done)

    def _set_admin(self, backend: Backend) -> None:
        """Give the first user its password, unless it has one."""
        user = self._options.admin_user
        if self._authenticator.is_user(user):
            return
        salts = [self._runtime.entropy.bytes(SALT_BYTES) for _ in ScramMechanism]
        read = partial(_admin_credentials, user, self._options.admin_password_file, salts)

        def done(replies: list[Ok | ApiError]) -> None:
            reply = replies[0]
            if self.node_audit is not None:
                _record_user(self.node_audit, "ConfiguredAdministrator", user, reply)
            if isinstance(reply, ApiError):
                log.warning("security.admin_not_set", user=user, reason=str(reply))
                due = Instant(self._runtime.clock.now() + ADMIN_RETRY_MS * MILLISECOND)
                self._runtime.timers.at(due, partial(self._set_admin, backend))
            else:
                log.info("security.admin_set", user=user)

        def submit(change: AlterScramCredentials) -> None:
            backend.access.alter_credentials([change], done)

        def failed(error: Exception) -> None:
            log.error("security.admin_not_set", user=user, reason=str(error))

        self._runtime.spawn.spawn(read, submit, failed, ExecutorKind.DISK)


class FirstAdministratorWatch:
    """Adds whom `penstock user bootstrap` has left for this node, at its start and while it runs."""

    def __init__(
        self, runtime: Runtime, backend: Backend, file: FirstAdministratorFile, audit: NodeAudit | None
    ) -> None:
        self._audit = audit
        self._runtime = runtime
        self._access = backend.access
        self._file = file

    def look(self) -> None:
        if self._file.is_there:
            self._runtime.spawn.spawn(self._file.read, self._submit, self._unread, ExecutorKind.DISK)
        else:
            self._look_again()

    def _look_again(self, after_ms: int = FIRST_ADMINISTRATOR_CHECK_MS) -> None:
        due = Instant(self._runtime.clock.now() + after_ms * MILLISECOND)
        self._runtime.timers.at(due, self.look)

    def _submit(self, administrator: AddFirstAdministrator) -> None:
        user = administrator.user

        def done(reply: Ok | ApiError) -> None:
            if self._audit is not None:
                _record_user(self._audit, "FirstAdministrator", user, reply)
            if isinstance(reply, Ok):
                log.info("security.first_administrator_added", user=user)
                self._settle(self._file.remove)
            elif reply.kind in FINAL:
                log.warning("security.first_administrator_refused", user=user, reason=str(reply))
                self._settle(partial(self._file.refuse, str(reply)))
            else:
                self._look_again()

        self._access.add_first_administrator(administrator, done)

    def _unread(self, error: Exception) -> None:
        if isinstance(error, FirstAdministratorUnusable):
            self._settle(partial(self._file.refuse, str(error)))
        else:
            self._stuck(error)

    def _settle(self, work: Callable[[], None]) -> None:
        self._runtime.spawn.spawn(work, lambda _none: self._look_again(), self._stuck, ExecutorKind.DISK)

    def _stuck(self, error: Exception) -> None:
        log.error("security.first_administrator_unusable", reason=str(error))
        self._look_again(UNUSABLE_CHECK_MS)


def _record_user(audit: NodeAudit, what: str, user: str, reply: Ok | ApiError) -> None:
    """The node has given somebody a password, or was told that it may not."""
    error = str(reply) if isinstance(reply, ApiError) else None
    details = [f"set {mechanism.name.lower()} of {user}" for mechanism in ScramMechanism]
    audit.did(what, AclOperation.ALTER, ("user", user), details=details, error=error)


def record_rotation(audit: NodeAudit, outcome: Rotated | ApiError) -> None:
    """The node has gone on with another master key, because of the age of the last one, or could not."""
    if isinstance(outcome, ApiError):
        audit.did("RotateMasterKey", AclOperation.ALTER, MASTER_KEY, details=[AGE], error=str(outcome))
    elif outcome.is_new:
        details = [AGE, f"current key {outcome.current}"]
        audit.did("RotateMasterKey", AclOperation.ALTER, MASTER_KEY, details=details)


def _admin_credentials(user: str, path: str, salts: list[bytes]) -> AlterScramCredentials:
    content = read_private(path, 4 * PASSWORD_CHARS_MAX + 2)
    password = content.decode(errors="replace").rstrip("\r\n")
    if not 0 < len(password) <= PASSWORD_CHARS_MAX:
        raise SecurityUnusable(f"{path} has no password, or one of more than {PASSWORD_CHARS_MAX} characters")
    pairs = zip(ScramMechanism, salts, strict=True)
    return AlterScramCredentials(
        user, tuple(credential_of(user, mechanism, password, salt, ITERATIONS) for mechanism, salt in pairs)
    )


def audit_log_of(runtime: Runtime, node: NodeOptions, topic: AuditTopicWriter) -> AuditLog | None:
    """The audit log of a node, if it has one."""
    options = node.security.audit
    if options is None:
        return None
    file = AuditFile(options.directory, options.file_bytes_max, options.files_max)
    return AuditLog(runtime, node.node_id, file, topic if options.topic else None)


def _tls_contexts(options: TlsOptions | None) -> "TlsContexts | None":
    if options is None:
        return None
    # Imported where they are used: a node without TLS starts without them.
    from penstock.security.tls_contexts import TlsContexts

    return TlsContexts(options)


def _token_verifier(runtime: Runtime, options: OAuthOptions | None) -> "JwtVerifier | None":
    if options is None:
        return None
    from penstock.security.oauth import JwtVerifier

    return JwtVerifier(runtime, options)
