"""Speculative decoding as `vllm serve` takes it: who drafts how many tokens, and how many of them will be accepted.

Not for scheduling drafts (`sim.core`) nor for what drafting costs (`sim.latency.drafter`). The one idea: whether a
draft is accepted depends on text, which a simulation does not have, so it must be said: as a real server's log tells it
("Per-position acceptance rate"), or as vLLM's own synthetic acceptance takes it.
Source: vLLM 0.32, config/speculative.py, v1/spec_decode/utils.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

from sim.errors import InputError
from sim.json_file import NOT_JSON
from sim.plurals import counted

if TYPE_CHECKING:
    from sim.config import EngineConfig
    from sim.core.config import SpecMethod

Settings = str | Mapping[str, Any]
"""A JSON object, as its text or parsed."""
Rates = float | tuple[float, ...]

METHODS: Mapping[str, SpecMethod] = MappingProxyType(
    {"ngram": "ngram", "ngram_gpu": "ngram", "eagle": "eagle", "eagle3": "eagle", "draft_model": "draft_model"}
)
"""vLLM's methods that are simulated -> what they ask of the scheduler."""

_NOT_BUILT_METHODS = ("medusa", "mlp_speculator", "suffix", "custom_class", "extract_hidden_states", "mtp", "dflash",
                      "dspark")  # fmt: skip
SIMULATED = ("method", "model", "num_speculative_tokens", "rejection_sample_method", "synthetic_acceptance_rates",
              "synthetic_acceptance_length", "use_heterogeneous_vocab")  # fmt: skip
UNSET_ONLY = ("parallel_drafting", "disable_padded_drafter_batch", "disable_eagle_block_drop",
               "num_speculative_tokens_per_batch_size", "enable_adaptive_verification")  # fmt: skip
KEYS_WITHOUT_EFFECT = (
    "prompt_lookup_min", "prompt_lookup_max", "draft_tensor_parallel_size", "quantization", "moe_backend",
    "attention_backend", "kv_cache_dtype", "max_model_len", "revision", "code_revision", "enforce_eager",
    "index_share_for_mtp_iteration", "use_local_argmax_reduction", "draft_load_config",
    "draft_sample_method", "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "dspark_draft_topk",
)  # fmt: skip
"""Keys that change which drafts there are, or how they are computed: neither is simulated."""

_FIELD = "speculative_config"

MOST_TOKENS = 128
"""Drafts of a request that vLLM's sampler verifies in a step (`MAX_SPEC_LEN` of v1/sample/rejection_sampler.py)."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """A drafter and how it fares."""

    method: str
    num_speculative_tokens: int
    acceptance_rates: tuple[float, ...]
    """Position i: the share of drafts whose first i + 1 tokens are all accepted, as vLLM logs it. Never rising."""
    model: str | None = None
    """As the user names the drafter: a model of the catalogue, a config.json, or a name that says nothing here."""
    use_heterogeneous_vocab: bool = False
    """A draft model may have another vocabulary than the model."""

    @property
    def scheduler_method(self) -> SpecMethod:
        """What it asks of the scheduler."""
        return METHODS[self.method]

    @property
    def allows_async(self) -> bool:
        """n-grams are looked up when the text is known, unless the GPU does it."""
        return self.method != "ngram"

    def check_beside(self, said: EngineConfig, *, asked_for_async: bool) -> None:
        """Raises InputError for settings that vLLM refuses beside it, or that break it off while it runs."""
        if asked_for_async and not self.allows_async:
            expected = f"no async scheduling with {self.method} drafts, as vLLM refuses it too"
            raise InputError(field="async_scheduling", value=True, expected=expected)
        threshold = said.long_prefill_token_threshold or 0
        if 0 < threshold < self.query_len and not said.long_prefill_token_threshold_adaptive:
            expected = f"0, or at least {self.query_len}, a token and its drafts: with less vLLM fails while it runs"
            raise InputError(field="long_prefill_token_threshold", value=threshold, expected=expected)

    @property
    def query_len(self) -> int:
        """Tokens of a decode that verifies a whole draft."""
        return 1 + self.num_speculative_tokens

    @property
    def chances(self) -> tuple[float, ...]:
        """Position i: that a token is accepted when all before it were."""
        before = (1.0, *self.acceptance_rates[:-1])
        return tuple(p / q if q > 0.0 else 0.0 for p, q in zip(self.acceptance_rates, before, strict=True))


def read_settings(name: str, settings: Settings) -> dict[str, Any]:
    """The object that a flag's JSON says, its keys with underscores. Raises InputError."""
    said: object = settings
    if isinstance(settings, str):
        try:
            said = json.loads(settings)
        except NOT_JSON as error:
            raise InputError(field=name, value=settings, expected="a JSON object") from error
    if not isinstance(said, Mapping):
        raise InputError(field=name, value=settings, expected="a JSON object")
    return {str(key).replace("-", "_"): value for key, value in said.items()}


def read_speculation(
    speculative_config: Settings | None, shorthands: Mapping[str, object], acceptance: Rates | None
) -> Speculation | None:
    """What `--speculative-config`, its shorthands (key -> value or None) and our acceptance rates say together.

    None where nobody drafts. Raises InputError for what vLLM refuses, for methods that are not built, and where nothing
    says how many drafts are accepted.
    """
    given = {key: value for key, value in shorthands.items() if value is not None}
    if speculative_config is None and not given:
        if acceptance is not None:
            raise InputError(field="draft_acceptance", value=acceptance, expected="a --speculative-config beside it")
        return None
    said = read_settings(_FIELD, speculative_config or {})
    for key, value in given.items():
        if key in said:
            raise InputError(field=_FIELD, value=said[key], expected=f"no {key}, as a flag of its own says {value!r}")
    return _checked(said | given, acceptance)


def check_alone(settings: Settings) -> None:
    """Raises InputError for what is wrong with a --speculative-config, whatever stands beside it."""
    said = read_settings(_FIELD, settings)
    _refuse_keys(said)
    if "num_speculative_tokens" in said:
        _count(said)
    _check_lookup(said, _method(said))


def _checked(said: Mapping[str, Any], acceptance: Rates | None) -> Speculation:
    _refuse_keys(said)
    method = _method(said)
    count = _count(said)
    _check_lookup(said, method)
    model = said.get("model")
    if model is not None and not isinstance(model, str):
        raise _wrong("model", model, "a text")
    if METHODS[method] != "ngram" and model is None:
        raise _wrong("model", None, f"a drafter's name or config.json, as method {method} needs one")
    heterogeneous = said.get("use_heterogeneous_vocab") or False
    if heterogeneous and method != "draft_model":
        raise _wrong("use_heterogeneous_vocab", heterogeneous, "method draft_model beside it")
    return Speculation(method, count, _acceptance(said, count, acceptance), model, bool(heterogeneous))


def _count(said: Mapping[str, Any]) -> int:
    count = said.get("num_speculative_tokens")
    if not _is_count(count) or count > MOST_TOKENS:
        expected = f"a whole number from 1 to {MOST_TOKENS} (or say it with --spec-tokens)"
        raise _wrong("num_speculative_tokens", count, expected)
    return count


def _check_lookup(said: Mapping[str, Any], method: str) -> None:
    """Lengths of n-grams change which drafts there are, and so nothing here; vLLM still refuses some."""
    least, most = said.get("prompt_lookup_min"), said.get("prompt_lookup_max")
    for key, value in (("prompt_lookup_min", least), ("prompt_lookup_max", most)):
        if value is not None and not _is_count(value):
            raise _wrong(key, value, "a whole number of 1 or more")
    if METHODS[method] == "ngram" and least is not None and most is not None and least > most:
        raise _wrong("prompt_lookup_min", least, f"at most prompt_lookup_max ({most})")


def _wrong(key: str, value: object, expected: str) -> InputError:
    return InputError(field=f"{_FIELD}.{key}", value=value, expected=expected)


def _refuse_keys(said: Mapping[str, Any]) -> None:
    for key, value in said.items():
        if key in UNSET_ONLY and value:
            raise InputError(f"{_FIELD}.{key}: not built yet: only its default is simulated")
        if key not in (*SIMULATED, *UNSET_ONLY, *KEYS_WITHOUT_EFFECT):
            expected = f"a key that vLLM 0.32 has: {', '.join(SIMULATED)}, ..."
            raise InputError(field=_FIELD, value=key, expected=expected)


def _method(said: Mapping[str, Any]) -> str:
    """vLLM guesses from the model's name where nothing is said."""
    method, model = said.get("method"), str(said.get("model") or "")
    if method is None and model in ("ngram", "[ngram]"):
        return "ngram"
    if method is None:
        name = model.lower()
        return "eagle" if "eagle-" in name else "eagle3" if "eagle3" in name else "draft_model"
    method = "ngram" if method == "[ngram]" else method
    if method in _NOT_BUILT_METHODS or str(method).endswith("_mtp"):
        raise InputError(f"{_FIELD}.method {method}: not built yet: {', '.join(METHODS)} are simulated")
    if not isinstance(method, str) or method not in METHODS:
        raise _wrong("method", method, f"one of {', '.join(METHODS)}")
    return method


def _acceptance(said: Mapping[str, Any], count: int, ours: Rates | None) -> tuple[float, ...]:
    rates, length = said.get("synthetic_acceptance_rates"), said.get("synthetic_acceptance_length")
    kind = said.get("rejection_sample_method", "standard")
    if kind not in ("standard", "synthetic", "block"):
        raise _wrong("rejection_sample_method", kind, "standard, synthetic or block")
    if kind != "synthetic":
        if rates is not None or length is not None:
            raise _wrong("rejection_sample_method", kind, "synthetic, where synthetic acceptance is said")
        if ours is None:
            raise InputError(
                field="draft_acceptance",
                expected="the acceptance rate of each draft position, as vLLM logs it, or one number: how often a draft"
                " is accepted if those before it were. It depends on the text, which a simulation does not have",
            )
        return _said_rates(ours, count)
    if ours is not None or (rates is None) == (length is None):
        raise _wrong("rejection_sample_method", kind, "exactly one of synthetic_acceptance_rates and _length beside it")
    if length is None:
        return _checked_rates(f"{_FIELD}.synthetic_acceptance_rates", rates, count)
    if not _is_number(length) or not 1 <= length <= count + 1:
        raise _wrong("synthetic_acceptance_length", length, f"a number from 1 to {count + 1}")
    whole = int(length - 1)
    return (*[1.0] * whole, length - 1 - whole, *[0.0] * count)[:count]


def _said_rates(ours: Rates, count: int) -> tuple[float, ...]:
    """One number is every position's chance, given those before it."""
    rates = ours if isinstance(ours, tuple) else (ours,)
    if len(rates) == 1 and count != 1:
        if not _is_number(rates[0]) or not 0.0 <= rates[0] <= 1.0:
            expected = f"one number from 0 to 1, or {count}: the shares of drafts accepted up to each position"
            raise InputError(field="draft_acceptance", value=rates[0], expected=expected)
        return tuple(rates[0] ** (position + 1) for position in range(count))
    return _checked_rates("draft_acceptance", rates, count)


def _checked_rates(name: str, rates: object, count: int) -> tuple[float, ...]:
    if (
        isinstance(rates, list | tuple)
        and len(rates) == count
        and all(_is_number(rate) and 0.0 <= rate <= 1.0 for rate in rates)
        and all(later <= earlier for earlier, later in pairwise(rates))
    ):
        return tuple(map(float, rates))
    expected = (
        f"{counted(count, 'number')} from 0 to 1, none above the one before: the share of drafts accepted up to there"
    )
    raise InputError(field=name, value=rates, expected=expected)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
