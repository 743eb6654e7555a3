"""What all tests share."""

from hypothesis import settings

# How long an example takes says more about who else uses the machine than about the code.
settings.register_profile("no deadline", settings(), deadline=None)
settings.load_profile("no deadline")
