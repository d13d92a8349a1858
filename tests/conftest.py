"""Make every run of the tests the same: property tests draw the same examples each time."""

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("same")
