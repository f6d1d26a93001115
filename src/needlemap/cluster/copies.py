"""Make the model of a run as copies in a cluster."""

from __future__ import annotations

from needlemap.asking.session import check_price, options_of
from needlemap.cluster.cluster import Cluster
from needlemap.cluster.pool import Replicas
from needlemap.cluster.replica import Recipe
from needlemap.models import find_backend
from needlemap.settings import Settings


def make_replicas(settings: Settings, cluster: Cluster) -> Replicas:
    """Return copies of the model that the settings name, in a cluster. Raises SettingsError."""
    check_price(settings)
    options = options_of(settings)
    traits = find_backend(settings.backend).traits(settings.model_name, options)
    recipe = Recipe(
        settings.backend,
        settings.model_name,
        options=options,
        weights=traits.weights,
    )
    slots = 1 if traits.serial else settings.concurrency
    return Replicas(recipe, cluster, slots=slots)
