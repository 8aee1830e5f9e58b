"""Settings of property-based tests that create a catalog for each example."""

from hypothesis import HealthCheck, Phase, settings


def catalog_for_each_example(max_examples: int) -> settings:
    """Return settings for a test that creates its catalogs with a fixture."""
    return settings(
        derandomize=True,
        deadline=None,
        max_examples=max_examples,
        # No shrinking: it would create catalogs for minutes.
        phases=[Phase.generate],
        # Each example creates its own catalog, so the examples may share the fixture.
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
