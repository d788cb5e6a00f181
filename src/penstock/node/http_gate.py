"""Who calls a node over HTTP: the gate of its own pages, and what its gateway asks about callers."""

import base64
import hmac
from collections.abc import Callable

import msgspec

from penstock.core.metadata.access import CLUSTER_NAME
from penstock.core.sasl.delegation import DELEGATE, Delegation, SignedDelegation, read_statement
from penstock.security import AclOperation, Authorizer, Principal, Resource, ResourceType, Session
from penstock.security.audit import LoginMeans, NodeAudit
from penstock.security.callers import CallerAuthenticator, CallerCredentials, NotIdentified
from penstock.security.delegations import Delegations
from penstock.security.key_uses import ApiKeyUses
from penstock.server.gateway.logins import LOGIN, RENEW, LoginAnswer, LoginQuestion, RenewQuestion
from penstock.server.gateway.pages import STATEMENT_HEADER
from penstock.server.http import HttpCaller, HttpHeaders, HttpRequest, HttpResponse
from penstock.server.http.server import NOT_IDENTIFIED

LISTENER = "http"
CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)
# A gateway asks so often whether its callers are still who they were.
RENEW_MS = 10_000
NOT_YET = HttpResponse(503, b"the cluster has no secret to sign with yet\n")
OTHER_SITE = HttpResponse(403, b"requests of pages of other sites are not served\n")
JSON = "application/json"
# By which callers say who they are.
NAMING_HEADERS = ("authorization", "x-api-key", STATEMENT_HEADER)


class PageCaller:
    """Somebody who was identified, by the access rules."""

    def __init__(self, delegation: Delegation, authorizer: Authorizer, audit: NodeAudit | None) -> None:
        principal = Principal("User", delegation.user)
        scope = frozenset(delegation.scope) if delegation.scope else None
        self._session = Session(principal, LISTENER, "", delegation.host, str(principal), scope)
        self._authorizer = authorizer
        self._audit = audit

    def may(self, operation: AclOperation, resource: Resource) -> bool:
        is_allowed = self._authorizer.authorize(self._session, operation, resource)
        if not is_allowed and self._audit is not None:
            self._audit.page_refused(self._session, operation, resource)
        return is_allowed

    def may_see_pages(self) -> bool:
        return self.may(AclOperation.DESCRIBE, CLUSTER)

    def may_see_names(self) -> bool:
        # Nobody is refused anything by this, so that it is not recorded.
        return self._authorizer.authorize(self._session, AclOperation.DESCRIBE, CLUSTER)


class NodeHttpGate:
    """Identifies callers of the node's pages by their headers, or by the statement that a gateway has got."""

    def __init__(
        self,
        callers: CallerAuthenticator,
        delegations: Delegations,
        authorizer: Authorizer,
        audit: NodeAudit | None = None,
    ) -> None:
        self._callers = callers
        self._audit = audit
        self._delegations = delegations
        self._authorizer = authorizer

    def admit(
        self,
        headers: HttpHeaders,
        host: str,
        certificate: bytes | None,
        done: Callable[[HttpCaller | HttpResponse], None],
    ) -> None:
        given = dict(headers)
        names = [name for name, _ in headers]
        if any(names.count(name) > 1 for name in NAMING_HEADERS):
            done(NOT_IDENTIFIED)
            return
        if given.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            # A browser may add credentials by itself to what the page of another site asks for.
            done(OTHER_SITE)
            return
        if not self._delegations.has_secret:
            done(NOT_YET)
            return
        if STATEMENT_HEADER in given:
            done(self._by_statement(given[STATEMENT_HEADER], host))
            return

        def identified(outcome: SignedDelegation | NotIdentified) -> None:
            if isinstance(outcome, NotIdentified):
                done(NOT_IDENTIFIED)
            else:
                done(PageCaller(read_statement(outcome.statement), self._authorizer, self._audit))

        credentials = CallerCredentials(
            given.get("authorization", ""), given.get("x-api-key", ""), certificate
        )
        self._callers.identify(credentials, host, identified)

    def is_named(self, headers: HttpHeaders, certificate: bytes | None) -> bool:
        return certificate is not None or any(name in NAMING_HEADERS for name, _ in headers)

    def _by_statement(self, header: str, host: str) -> HttpCaller | HttpResponse:
        signed = _signed(header)
        found = "not a statement" if signed is None else self._delegations.verify(signed)
        if not isinstance(found, str):
            return PageCaller(found, self._authorizer, self._audit)
        if self._audit is not None:
            self._audit.login_failed("", host, "page", LoginMeans(DELEGATE), found)
        return NOT_IDENTIFIED


class GatewayLogins:
    """Answers the gateway's questions about callers."""

    def __init__(
        self, token: str, callers: CallerAuthenticator, delegations: Delegations, uses: ApiKeyUses
    ) -> None:
        self._token = token
        self._callers = callers
        self._delegations = delegations
        self._uses = uses
        self._login = msgspec.json.Decoder(LoginQuestion)
        self._renew = msgspec.json.Decoder(RenewQuestion)

    def __call__(self, request: HttpRequest, respond: Callable[[HttpResponse], None]) -> None:
        question: LoginQuestion | RenewQuestion
        try:
            if request.path == LOGIN:
                question = self._login.decode(request.body)
            elif request.path == RENEW:
                question = self._renew.decode(request.body)
            else:
                respond(HttpResponse(404, b"there is no such question\n"))
                return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            respond(HttpResponse(400, b"not a question of a gateway\n"))
            return
        if not hmac.compare_digest(question.token.encode(), self._token.encode()):
            respond(HttpResponse(403, b"this is for the node's gateway\n"))
        elif not self._delegations.has_secret:
            respond(NOT_YET)
        elif isinstance(question, LoginQuestion):
            self._answer_login(question, respond)
        else:
            self._answer_renewal(question, respond)

    def _answer_login(self, question: LoginQuestion, respond: Callable[[HttpResponse], None]) -> None:
        def identified(outcome: SignedDelegation | NotIdentified) -> None:
            respond(NOT_IDENTIFIED if isinstance(outcome, NotIdentified) else _answer(outcome))

        credentials = CallerCredentials(question.authorization, question.api_key, question.certificate)
        self._callers.identify(credentials, question.host, identified, question.protocol)

    def _answer_renewal(self, question: RenewQuestion, respond: Callable[[HttpResponse], None]) -> None:
        renewed = self._delegations.renew(SignedDelegation(question.statement, question.key))
        if isinstance(renewed, str):
            respond(NOT_IDENTIFIED)
            return
        api_key = read_statement(renewed.statement).api_key
        if api_key:
            self._uses.note(api_key)
        respond(_answer(renewed))


def _answer(signed: SignedDelegation) -> HttpResponse:
    user = read_statement(signed.statement).user
    answer = LoginAnswer(user, signed.statement, signed.key, RENEW_MS)
    return HttpResponse(200, msgspec.json.encode(answer), JSON)


def _signed(header: str) -> SignedDelegation | None:
    statement, _, key = header.partition(".")
    try:
        return SignedDelegation(
            base64.b64decode(statement, validate=True), base64.b64decode(key, validate=True)
        )
    except ValueError:
        # Not of base64's letters, or not even of ASCII's.
        return None
