"""Records that are published later: what clients ask for, and what is done when they are due.

    delay_view    any node: schedules, cancels and lists, wherever the coordinators are
    peers         the way to a coordinator on another node
    publisher     the coordinator's node: publishes what is due, in transactions

The machine is `core.delays`, its host `broker.coordinator.delays`.
"""
