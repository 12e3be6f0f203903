"""Which settings a sweep tries: axes of values, lists of records, and their product.

Not for what a setting means (`sim.config`, `sim.workload`). The one idea: a setting is a server's half and a client's
half, each a record of knobs and values, as `vllm bench sweep serve` has them; an axis is a list of short records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import product
from typing import TYPE_CHECKING, Any

from sim.config import EngineConfig
from sim.errors import InputError, did_you_mean
from sim.latency.profile import Profile
from sim.workload import ANY_TRACE, GOES_WITH, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Record = Mapping[str, object]

NAME = "_benchmark_name"
"""The key under which a record of vLLM's files says what it is called."""

SERVER_KNOBS = frozenset({field.name for field in fields(EngineConfig)} | {"profile"})
CLIENT_KNOBS = frozenset({"trace", *GOES_WITH, *ANY_TRACE} - {"seed", "strict"})
KNOBS = SERVER_KNOBS | CLIENT_KNOBS
LOAD_KNOBS = ("rate_scale", "request_rate", "max_concurrency")
"""How much comes at once. The others say what serves it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One combination, as two records under the names that the user wrote; `knobs` has ours, without either's name."""

    server: Record = field(default_factory=dict)
    client: Record = field(default_factory=dict)

    @property
    def knobs(self) -> dict[str, Any]:
        """Knob -> value, under the names of `KNOBS`."""
        both = {**self.server, **self.client}
        return {underscored(name): value for name, value in both.items() if name != NAME}

    @property
    def told(self) -> Setting:
        """The same for people and files: a path is its name, without its folder, so that it is the same anywhere."""
        named = {
            name: file_name(value.name if isinstance(value, Profile) else str(value))
            for name, value in self.knobs.items()
            if name in ("trace", "profile")
        }
        return Setting(
            {name: named.get(name, value) for name, value in self.server.items()},
            {name: named.get(name, value) for name, value in self.client.items()},
        )

    def __or__(self, other: Setting) -> Setting:
        return Setting({**self.server, **other.server}, {**self.client, **other.client})


def grid(axes: Mapping[str, Sequence[object]]) -> list[Setting]:
    """All combinations of the axes' values, the last axis fastest. Raises InputError for an unknown or empty axis."""
    return list(_joined(_axis(name, values) for name, values in axes.items()))


def combined(*lists: Sequence[Setting]) -> tuple[Setting, ...]:
    """Each setting of one list with each of the others, the last list fastest. Raises InputError for a knob in two."""
    names = [{knob for setting in settings for knob in setting.knobs} for settings in lists]
    for i, here in enumerate(names):
        for twice in sorted(here & set().union(*names[:i])):
            raise InputError(field=twice, expected="to be varied in one place only")
    return tuple(_joined(lists))


def knob(name: str) -> str:
    """The knob that a user's name means, dashes or underscores. Raises InputError: did you mean."""
    known = underscored(name)
    if known in KNOBS:
        return known
    if known == "seed":
        raise InputError("seed does not vary: --replications takes one seed after the other, for all settings alike")
    expected = "a flag of vllm serve or of the workload, trace or profile"
    raise InputError(field="knob", value=name, expected=f"{expected}{did_you_mean(known, sorted(KNOBS))}")


def underscored(name: str) -> str:
    """A flag's name as Python spells it."""
    return name.strip().removeprefix("--").replace("-", "_")


def one(name: str, value: object) -> Setting:
    """The setting of one knob."""
    record = {name: value}
    return Setting(server=record) if knob(name) in SERVER_KNOBS else Setting(client=record)


def _axis(name: str, values: Sequence[object]) -> list[Setting]:
    known = knob(name)
    if len(values) == 0:
        raise InputError(field=known, expected="at least one value to try")
    for i, value in enumerate(values):
        if value in values[:i]:
            raise InputError(field=known, value=value, expected="each value once")
    return [one(known, value) for value in values]


def _joined(lists: Iterable[Sequence[Setting]]) -> Iterable[Setting]:
    for parts in product(*lists):
        whole = Setting()
        for part in parts:
            whole = whole | part
        yield whole
