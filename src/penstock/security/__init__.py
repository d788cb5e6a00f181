"""Sessions, authorization and quotas.

Every request goes through an `Authorizer` with its `Session`: `authorize` before anything is
done, `charge` for what it cost. A listener without an authorizer allows everything at no charge;
access control lists and quotas are authorizers, and nothing else changes when they come.

Left out: authentication (SASL, TLS), which fills the principal in.
"""

from penstock.security.authorizer import AclOperation, Authorizer, QuotaType, Resource, ResourceType
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
