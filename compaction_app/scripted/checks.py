"""Checks of a request that both services make: fields, tools and their JSON schemas.

A fault is a sentence for the 400 response; the checks raise it as `RequestFault`, and the app answers with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

_TYPES: Final = {"object", "array", "string", "integer", "number", "boolean", "null"}
_KEYWORDS: Final = {
    *("type", "description", "title", "default", "examples", "enum", "const", "format", "pattern"),
    *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    *("items", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("anyOf", "oneOf", "allOf", "$ref", "$defs"),
}


class RequestFault(Exception):
    """An error in a request; `param` is its location, as in OpenAI's errors."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def require(is_right: object, message: str, param: str | None = None) -> None:
    """Raise RequestFault unless the condition is met."""
    if not is_right:
        raise RequestFault(message, param)


def is_whole(value: object) -> bool:
    """Whether it is an integer, which excludes true and false."""
    return isinstance(value, int) and not isinstance(value, bool)


def known_only(found: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raise RequestFault if there is a field that the service does not know."""
    for name in found:
        require(name in known, f"{where}{name}: Extra inputs are not permitted", f"{where}{name}")


def check_tool_name(name: object, where: str, longest: int) -> None:
    """Raise RequestFault if the name is not a valid tool name."""
    is_right = isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{longest}}}", name)
    require(is_right, f"{where}: String should match pattern '^[a-zA-Z0-9_-]{{1,{longest}}}$'", where)


def check_schema(schema: object, where: str, *, is_strict: bool) -> None:
    """Raise RequestFault if a tool's JSON schema is invalid; strict ones allow no additional properties."""
    require(
        isinstance(schema, dict) and schema.get("type") == "object",
        f"{where}.type: Input should be 'object'",
        where,
    )
    _check_schema(schema, where, is_strict)


def _check_schema(schema: object, where: str, is_strict: bool) -> None:
    if not isinstance(schema, dict):
        raise RequestFault(f"{where}: JSON schema is invalid: it is not an object", where)
    for keyword in schema:
        require(keyword in _KEYWORDS, f"{where}: JSON schema is invalid: unknown keyword {keyword!r}", where)
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    has_choice = bool({"anyOf", "oneOf", "allOf", "$ref", "enum", "const"} & schema.keys())
    require(has_choice or set(kinds) <= _TYPES, f"{where}: JSON schema is invalid: type {kind!r}", where)
    require(
        isinstance(schema.get("enum", []), list),
        f"{where}: JSON schema is invalid: enum is not a list",
        where,
    )
    if "object" in kinds:
        _check_object(schema, where, is_strict)
    if "array" in kinds:
        require("items" in schema, f"{where}: array schema missing items", where)
        _check_schema(schema["items"], f"{where}.items", is_strict)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for place, one in enumerate(schema.get(keyword, ())):
            _check_schema(one, f"{where}.{keyword}.{place}", is_strict)


def _check_object(schema: Mapping[str, Any], where: str, is_strict: bool) -> None:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    require(isinstance(properties, dict), f"{where}: JSON schema is invalid: properties is not an object", where)
    require(
        isinstance(required, list) and set(required) <= properties.keys(),
        f"{where}: JSON schema is invalid: required lists an unknown property",
        where,
    )
    if is_strict:
        require(
            schema.get("additionalProperties") is False,
            f"{where}: 'additionalProperties' is required to be supplied and to be false",
            where,
        )
    for name, one in properties.items():
        _check_schema(one, f"{where}.properties.{name}", is_strict)
