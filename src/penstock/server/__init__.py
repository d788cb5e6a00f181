"""The doors: each translates one protocol into use cases, and refusals into its own codes.

Gateways never know each other. What they share lies below them: services, security, and
the pipes of the runtime.
"""
