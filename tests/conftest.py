"""What holds for every test."""

from hypothesis import settings

# How long an example takes depends on who else uses the machine; it is no test's business.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")
