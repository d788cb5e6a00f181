"""What Penstock decides, without touching the world.

Nothing in here does I/O, reads a clock, draws a random number, logs or knows about
threads and event loops: time, ids and randomness come in as arguments, and what should
happen goes out as values. That is what lets the simulator replay a whole cluster from
one seed.

    raft | metadata | replica | groups | protocol
                     records
                      model
"""
