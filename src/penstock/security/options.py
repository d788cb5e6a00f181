"""What can be chosen about a node's security; light, so that a node without it loads nothing else."""

from collections.abc import Iterable

from penstock.core.values import dataclass

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_RULE = "DEFAULT"
OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Files and demands of listeners with TLS; see `security.tls` of the configuration."""

    certificate: str
    key: str
    authority: str = ""
    client_auth: str = "none"
    version_min: str = "1.2"
    principal_rules: tuple[str, ...] = (DEFAULT_RULE,)
    node_rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """Which bearer tokens count; see `security.oauth` of the configuration."""

    jwks: str
    issuer: str = ""
    audience: str = ""
    scope: str = ""
    user_claim: str = "sub"
    clock_skew_ms: int = 30_000
    refresh_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is recorded, and where; see `security.audit` of the configuration."""

    directory: str
    file_bytes_max: int = 64 << 20
    files_max: int = 10
    topic: bool = False
    data: bool = False


@dataclass(frozen=True, slots=True)
class EncryptionOptions:
    """Where the master keys come from; see `security.encryption` of the configuration."""

    service: str = "keyring"
    keyring: str = ""
    variable: str = "PENSTOCK_MASTER_KEYS"
    command: tuple[str, ...] = ()
    plugin: str = ""
    # Names and values.
    plugin_options: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 10_000
    rotation_interval_ms: int = 0
    reseal_bytes_per_second: int = 32 << 20

    def __repr__(self) -> str:
        """Without what may have a secret."""
        return f"EncryptionOptions({self.service})"


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Who may do what on a node."""

    enabled: bool = False
    super_users: tuple[str, ...] = ()
    open_without_rules: bool = False
    admin_user: str = ""
    admin_password_file: str = ""
    # Where a first administrator may be left for the node.
    data_dir: str = ""
    mechanisms: tuple[str, ...] = ("SCRAM-SHA-512", "SCRAM-SHA-256")
    reauthenticate_ms: int = 0
    tls: TlsOptions | None = None
    peers: str = "auto"
    oauth: OAuthOptions | None = None
    audit: AuditOptions | None = None
    encryption: EncryptionOptions | None = None

    @property
    def peer_mode(self) -> str:
        """What nodes speak to each other: `tls`, `mixed` or `plain`."""
        if self.peers != "auto":
            return self.peers
        has_authority = self.tls is not None and bool(self.tls.authority)
        return "tls" if self.enabled and has_authority else "plain"

    def problem_with(self, protocols: Iterable[str]) -> str | None:
        """What is missing for listeners with these protocols."""
        for protocol in protocols:
            if protocol in TLS_PROTOCOLS and self.tls is None:
                return f"a listener with {protocol} needs security.tls.certificate and security.tls.key"
            if protocol in SASL_PROTOCOLS and OAUTHBEARER in self.mechanisms and self.oauth is None:
                return "OAUTHBEARER needs security.oauth.jwks"
        if self.oauth is not None and _has_login(self.oauth.jwks):
            return "security.oauth.jwks must have no user and no password: they are not sent"
        if self.peer_mode != "plain" and self.tls is None:
            return f"security.peers: {self.peers} needs security.tls.certificate, key and authority"
        if bool(self.admin_user) is not bool(self.admin_password_file):
            return "security.admin_user and security.admin_password_file belong together"
        return None


def _has_login(source: str) -> bool:
    """Whether an address has a user in it, as browsers take it."""
    _, separator, rest = source.partition("://")
    return bool(separator) and "@" in rest.partition("?")[0]
