"""Build the small modules of the core in every way that must give the same bits."""

from __future__ import annotations

import os

import pytest

from tests.core.parts import BUILDS, Parts, load


def _chosen() -> list[str]:
    named = os.environ.get("GOSSAMER_PARTS", "")
    return [named] if named else [name for name, build in BUILDS.items() if not build.checked]


@pytest.fixture(scope="session", params=_chosen())
def parts(request: pytest.FixtureRequest) -> Parts:
    """Give one build of the modules; tests that use it run once for each."""
    build = BUILDS[request.param]
    if not build.found:
        pytest.skip(f"no {build.compiler} here")
    return load(request.param)
