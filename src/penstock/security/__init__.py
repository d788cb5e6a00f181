"""Who is calling, may they, and how much.

Every request goes through a `Authorizer` with its `Session`: `authorize` before anything is
done, `charge` for what it cost. A door without a gate lets everyone through at no charge;
access control lists and quotas are gates, and nothing else changes when they come.

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
