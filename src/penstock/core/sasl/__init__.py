"""How clients say who they are: the server's side of SASL, as pure machines.

An exchange takes what the client sent and returns a step: a challenge, or the end of it.

    exchange.step(b"…") -> Challenge(b"…") | LoggedIn(user, b"…") | Refused(reason)

* `scram` is SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): the client proves that it knows the password,
  the server that it knows of it, and neither can be overheard;
* `plain` is PLAIN (RFC 4616): the password itself, for connections that are encrypted;
* `oauth` is OAUTHBEARER (RFC 7628): a token that somebody else has signed;
* `delegation` is ours: a node says for whom its gateway acts.

Passwords and tokens are checked elsewhere (`penstock.security`), because that takes time or keys that
rotate: `plain` and `oauth` only read the message. Randomness comes in with the exchange.

Left out: channel binding, and `SASLprep`: names and passwords are compared as they are written in UTF-8,
which is what Kafka's own clients send.
"""

from penstock.core.sasl.delegation import DELEGATE, DelegatedLogin, Delegation, SignedDelegation
from penstock.core.sasl.exchange import Challenge, LoggedIn, Refused, Step
from penstock.core.sasl.oauth import OAuthMessage, read_oauth_message
from penstock.core.sasl.plain import PlainMessage, read_plain_message
from penstock.core.sasl.scram import ScramExchange, credential_of, decoy_credential, is_password

__all__ = [
    "Step",
    "Challenge",
    "LoggedIn",
    "Refused",
    "ScramExchange",
    "credential_of",
    "decoy_credential",
    "is_password",
    "PlainMessage",
    "read_plain_message",
    "DELEGATE",
    "Delegation",
    "DelegatedLogin",
    "SignedDelegation",
    "OAuthMessage",
    "read_oauth_message",
]
