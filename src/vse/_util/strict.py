"""Read configuration strictly: an error names the unknown key or invalid value, its file and the closest valid key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from vse._util.schema import read_json
from vse.errors import InputError, unknown_choice

__all__ = ["Strict", "explain", "parse", "read_json"]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _OneLineErrors(ModelMetaclass):
    """Construction in Python fails with a one-line :class:`InputError` instead of pydantic's page.

    A metaclass, because a custom ``__init__`` would also run, and slow down, the validation of nested models.
    """

    def __call__(cls, *args: Any, **values: Any) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            raise InputError(f"{cls.__name__}: {explain(cast(type[BaseModel], cls), error)}") from None


class Strict(BaseModel, metaclass=_OneLineErrors):
    """A frozen model read from JSON or TOML; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=False)


Value = TypeVar("Value", bound=BaseModel)


def parse(kind: type[Value], mapping: Mapping[str, Any], where: str) -> Value:
    """Return ``mapping`` as a ``kind``, or raise a one-line :class:`InputError` that starts with ``where``."""
    try:
        return kind.model_validate(dict(mapping))
    except ValidationError as error:
        raise InputError(f"{where}: {explain(kind, error)}") from None


def explain(kind: type[BaseModel], error: ValidationError) -> str:
    """Return the first problem, and how many more there are."""
    found = error.errors(include_url=False)
    # A misspelt required key is reported twice, as unknown and as missing; the unknown name is more helpful.
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        *parents, key = first["loc"]
        known = _keys_at(kind, [str(part) for part in parents])
        place = f" in {'.'.join(map(str, parents))!r}" if parents else ""
        message = unknown_choice(f"key{place}", key, known) if known else f"unknown key {path!r}"
    elif first["type"] == "missing":
        message = f"{path!r} is missing"
    else:
        said = str(first["msg"]).removeprefix("Value error, ")  # the message of our own checks, after pydantic's prefix
        message = f"{path!r} is {first['input']!r}: {said}" if path else said
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return message + more


def _keys_at(kind: type[BaseModel], path: list[str]) -> list[str]:
    """Return the valid keys at ``path``, following fields into nested models and unions."""
    kinds: list[type[BaseModel]] = [kind]
    for part in path:
        if part.isdecimal():  # an element of a list
            continue
        inner: list[type[BaseModel]] = []
        for each in kinds:
            field = each.model_fields.get(part)
            if field is not None:
                inner += _models_in(field.annotation)
            elif any(part == _tag(each, name) for name in each.model_fields):  # the tag of a union, not a field
                inner.append(each)
        kinds = inner
    return [name for each in kinds for name in each.model_fields]


def _tag(kind: type[BaseModel], name: str) -> str | None:
    default = kind.model_fields[name].default
    return default if name == "kind" and isinstance(default, str) else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]
