"""What every HTTP response tells a browser: it is what it says, belongs nowhere else, and is not kept."""

from typing import Final

CONTENT_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
# The page at /docs has its script and its style in itself, and asks nobody but this server.
DOCS_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", CONTENT_POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
# Under TLS: come back so, and not without it, for a year.
TLS_HEADERS: Final = (*HEADERS, ("Strict-Transport-Security", "max-age=31536000"))
# What a caller without an identity may come back with.
CHALLENGE: Final = 'Bearer realm="penstock", Basic realm="penstock", charset="UTF-8"'
# Of the gateway, some of whose pages have a policy of their own beside this one: both count.
API_HEADERS: Final = tuple(
    (name, "frame-ancestors 'none'" if value == CONTENT_POLICY else value) for name, value in HEADERS
)
API_TLS_HEADERS: Final = (*API_HEADERS, TLS_HEADERS[-1])
