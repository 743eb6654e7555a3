import pytest


@pytest.fixture
def features():
    """Switches on, for one test, what OpenDP must be asked for."""
    from opendp.mod import disable_features, enable_features

    enable_features("contrib", "honest-but-curious")
    yield
    disable_features("contrib", "honest-but-curious")
