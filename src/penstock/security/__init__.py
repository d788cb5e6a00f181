"""Who is calling, may they, and how much.

Every request goes through an `Authorizer` with its `Session`: `authorize` before anything is done, `charge`
for what it cost. A listener without an authorizer allows everything at no charge.

    authenticator   logins by SASL; passwords by the metadata's credentials, `login_limits` for failures
    oauth           bearer tokens, by the keys of their issuer
    tls_contexts    a node's certificate, and who the owner of a client's is
    decoys          what users that do not exist look like
    private_files   files with secrets
    audit           who did what, and whether it was allowed
    acls, quotas    the rules and limits of the metadata; `access_control` is the authorizer made of both
    certificates    a private authority for those who have none
    callers         who calls over HTTP and gRPC: API keys, tokens, passwords, certificates
    delegations     statements of nodes about callers, by which their gateways act for these
    key_uses        when API keys were last used
    key_services    where the master keys of encryption at rest come from
    options         what can be chosen
"""

from penstock.core.metadata.access import AclOperation, ResourceType
from penstock.security.authorizer import Authorizer, QuotaType, Resource
from penstock.security.sessions import ANONYMOUS, Principal, Session

__all__ = [
    "Session",
    "Principal",
    "ANONYMOUS",
    "Authorizer",
    "AclOperation",
    "Resource",
    "ResourceType",
    "QuotaType",
]
