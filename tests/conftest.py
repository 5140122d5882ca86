"""Hypothesis profiles: `default` repeats the same few examples, `nightly` is the long campaign."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("default", max_examples=80, derandomize=True, **_COMMON)
settings.register_profile("nightly", max_examples=2_500, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
