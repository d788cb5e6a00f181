"""Who is calling, may they, and how much.

Every request goes through a `Gate` with its `Session`: `authorize` before anything is
done, `charge` for what it cost. A door without a gate lets everyone through at no charge;
access control lists and quotas are gates, and nothing else changes when they come.

Left out: authentication (SASL, TLS), which fills the principal in.
"""

from penstock.security.gate import Cost, Gate, Operation, Resource, ResourceKind
from penstock.security.session import ANONYMOUS, Principal, Session

__all__ = [
    "Session",
    "Principal",
    "ANONYMOUS",
    "Gate",
    "Operation",
    "Resource",
    "ResourceKind",
    "Cost",
]
