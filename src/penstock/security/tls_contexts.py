"""The TLS of a node's listeners: its certificate, whom it trusts, and who the owner of a certificate is."""

import os
import re
import ssl
from typing import NamedTuple

from cryptography import x509

from penstock.core.model import PenstockError, Timestamp
from penstock.observability import log
from penstock.security.certificates import UNREADABLE
from penstock.security.options import DEFAULT_RULE, TlsOptions
from penstock.security.private_files import SecretExposed, check_private
from penstock.security.sessions import ANONYMOUS, Principal

SUBJECT_CHARS_MAX = 2_000
_RULE = re.compile(r"RULE:(?P<pattern>.*?(?<!\\))/(?P<replacement>.*?)/(?P<case>[LU]?)")
_GROUP = re.compile(r"\$(\d)")


class TlsUnusable(PenstockError):
    """The certificates cannot be used; says which file, and why."""


class PrincipalRule(NamedTuple):
    """`RULE:pattern/replacement/`: what the subject of a certificate becomes if the pattern fits."""

    pattern: re.Pattern[str]
    replacement: str
    case: str = ""

    @classmethod
    def parse(cls, text: str, setting: str = "security.tls.principal_rules") -> "PrincipalRule":
        """Read a rule; TlsUnusable says what is wrong. `DEFAULT` is the whole subject."""
        if text == DEFAULT_RULE:
            return cls(re.compile(r"^(.*)$"), "$1")
        found = _RULE.fullmatch(text)
        if found is None:
            raise TlsUnusable(f"{setting}: not RULE:pattern/replacement/ or DEFAULT: {text!r}")
        try:
            pattern = re.compile(found["pattern"])
        except (re.error, OverflowError, RecursionError) as error:
            raise TlsUnusable(f"{setting}: {text!r}: {error}") from None
        if any(int(number) > pattern.groups for number in _GROUP.findall(found["replacement"])):
            raise TlsUnusable(f"{setting}: {text!r} names a group that its pattern does not have")
        return cls(pattern, found["replacement"], found["case"])

    def apply(self, subject: str) -> str | None:
        """The name that the rule makes of a subject; None if it does not fit all of it."""
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class TlsContexts:
    """The context that new connections get, made again when a file changes. Those that exist keep theirs."""

    def __init__(self, options: TlsOptions) -> None:
        """Read the files, or raise TlsUnusable."""
        self._options = options
        self._rules = tuple(map(PrincipalRule.parse, options.principal_rules))
        self._read = self._stamps()
        self.current = make_context(options)

    def check(self) -> None:
        """Read the files again if they have changed; what cannot be used is reported, and changes nothing."""
        stamps = self._stamps()
        if stamps == self._read:
            return
        self._read = stamps
        try:
            self.current = make_context(self._options)
        except TlsUnusable as error:
            log.error("tls.certificate_refused", reason=str(error))
        else:
            log.info("tls.certificate_replaced", file=self._options.certificate)

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Who the owner of a certificate is; nobody without one, or with one that cannot be read."""
        if certificate is None:
            return ANONYMOUS
        try:
            subject = x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
        except UNREADABLE as error:
            log.warning("tls.certificate_unreadable", reason=str(error)[:200])
            return ANONYMOUS
        if len(subject) > SUBJECT_CHARS_MAX:
            # A part of it might fit a rule that the whole does not.
            log.warning("tls.certificate_unreadable", reason=f"its subject has {len(subject)} characters")
            return ANONYMOUS
        for rule in self._rules:
            name = rule.apply(subject)
            if name:
                return Principal("User", name)
        return ANONYMOUS

    def _stamps(self) -> tuple[object, ...]:
        return tuple(file_stamp(path) for path in self._files())

    def _files(self) -> list[str]:
        options = self._options
        return [path for path in (options.certificate, options.key, options.authority) if path]


def end_of_certificate(certificate: bytes) -> Timestamp | None:
    """Until when it is valid; None if it cannot be read."""
    try:
        end = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    except UNREADABLE:
        return None
    return Timestamp(int(end.timestamp() * 1_000))


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """A server's context, or TlsUnusable."""
    context = private_context(options, ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_3 if options.version_min == "1.3" else ssl.TLSVersion.TLSv1_2
    )
    load_files(context, options)
    if options.client_auth != "none":
        context.verify_mode = ssl.CERT_REQUIRED if options.client_auth == "need" else ssl.CERT_OPTIONAL
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """What a node connects to listeners of its cluster with, or TlsUnusable: it shows its own certificate."""
    context = ssl.create_default_context(cafile=options.authority or None)
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_3 if options.version_min == "1.3" else ssl.TLSVersion.TLSv1_2
    )
    load_files(context, options)
    if not options.authority:
        # A certificate that nobody has signed is at least our own.
        context.load_verify_locations(options.certificate)
    return context


def private_context(options: TlsOptions, protocol: int) -> ssl.SSLContext:
    """A context that speaks TLS 1.3, if the key is its owner's alone; or TlsUnusable."""
    try:
        check_private(options.key)
    except SecretExposed as error:
        raise TlsUnusable(str(error)) from None
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def load_files(context: ssl.SSLContext, options: TlsOptions) -> None:
    """Give the context its certificate and whom it trusts, or raise TlsUnusable."""
    try:
        context.load_cert_chain(options.certificate, options.key)
    except FileNotFoundError:
        missing = next(each for each in (options.certificate, options.key) if not os.path.exists(each))
        raise TlsUnusable(f"{missing} is missing") from None
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise TlsUnusable(f"{options.certificate} and {options.key} cannot be used: {reason}") from None
    if options.authority:
        try:
            context.load_verify_locations(options.authority)
        except (ssl.SSLError, OSError) as error:
            reason = getattr(error, "strerror", None) or "it has no certificate"
            raise TlsUnusable(f"{options.authority} cannot be used: {reason}") from None


def file_stamp(path: str) -> tuple[int, int, int] | None:
    """What tells a file from the one that takes its place; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
