"""Base class of the sections of a config, and their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ips.errors import shown

# Every whole number is at most this; larger ones would overflow or never fit into memory.
_LARGEST = 10**9


class Section(BaseModel):
    """Settings that cannot be changed; a key that does not exist is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            numbers = value if isinstance(value, list) else [value]
            if name != "seed" and any(isinstance(n, int) and n > _LARGEST for n in numbers):
                raise ValueError(f"{name}={shown(value)} is too large: at most {_LARGEST:,}")
            if isinstance(value, Path) and "\0" in str(value):
                raise ValueError(f"{name}={shown(str(value))}: a path has no zero bytes")
        return self


def key(default: Any, help: str, **limits: Any) -> Any:
    """A setting with its default, its help text, and limits of its value."""
    return Field(default, description=help, **limits)


def seed_key(help: str) -> Any:
    """A random seed, 0 by default."""
    return key(0, help, ge=0, lt=2**32)
