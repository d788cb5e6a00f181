"""How often a node looks for reference cycles.

Python starts to look after every 700 new containers, and now and then looks at all there are,
on the loop, while every client waits. What a node serves is freed by counting references; what
it set up at the start stays. So what exists once a node has started is never looked at again,
and the rest seldom. The median hardly notices (on a busy machine it was within the noise); what
goes is the pause of a look at everything.
"""

import gc

# Containers made and not yet freed, before the youngest are looked at; then how many times
# those, before the next older ones are.
THRESHOLDS = (50_000, 20, 50)


def settle() -> None:
    """What exists now is here to stay; look for cycles among the rest, but seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
