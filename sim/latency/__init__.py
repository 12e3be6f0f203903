"""Prices a step: what its time depends on (shape), the law (model), where it holds (domain), the file (profile)."""

from __future__ import annotations

from sim.latency.domain import Domain
from sim.latency.graphs import Graphs, capture_sizes
from sim.latency.model import FusedLaw, StepTime
from sim.latency.profile import DEFAULT_PROFILE, ClientTerms, Profile, profile_names
from sim.latency.shape import StepShape

__all__ = [
    "DEFAULT_PROFILE",
    "ClientTerms",
    "Domain",
    "FusedLaw",
    "Graphs",
    "Profile",
    "StepShape",
    "StepTime",
    "capture_sizes",
    "profile_names",
]
