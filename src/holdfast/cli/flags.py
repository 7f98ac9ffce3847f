"""Flags from a struct of options: the name, type and description of each field make its flag."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import click
from msgspec import Struct, inspect

from holdfast.cli.text import local_day, parse_when
from holdfast.errors import InvalidInput


def flags_of(
    options: type[Struct], *, short: Mapping[str, str] | None = None, only: Collection[str] | None = None
) -> tuple[Callable[..., Any], ...]:
    """The flags of all fields, or *only* of some, in their order; *short* has the letters of some."""
    fields = [field for field in _fields(options) if only is None or field.name in only]
    return tuple(_flag(field, (short or {}).get(field.name)) for field in fields)


def read_flags(options: type[Struct], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the flags that the command line has, as the struct takes them."""
    fields = {field.name: field for field in _fields(options)}
    present = {
        name: value for name, value in values.items() if value is not None and value is not False and value != ()
    }
    return {name: _read(name, _shape(fields[name])[0], value) for name, value in present.items()}


def _fields(options: type[Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(options)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _shape(field: inspect.Field) -> tuple[inspect.Type, str, bool]:
    """The main type of a field, its description, and whether it is a time."""
    type_, description = field.type, ""
    while isinstance(type_, inspect.Metadata):
        description = str((type_.extra_json_schema or {}).get("description", description))
        type_ = type_.type
    types = type_.types if isinstance(type_, inspect.UnionType) else (type_,)
    main = next(each for each in types if not isinstance(each, inspect.NoneType | inspect.FloatType))
    item = main.item_type if isinstance(main, inspect.ListType) else main
    pieces = item.types if isinstance(item, inspect.UnionType) else types
    return main, description, any(isinstance(each, inspect.FloatType) for each in pieces)


def _title(field: inspect.Field) -> str | None:
    """The word for the value in the help, if the field declares one."""
    extra = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None
    return None if extra is None else extra.get("title")


def _flag(field: inspect.Field, letter: str | None) -> Callable[..., Any]:
    main, description, is_time = _shape(field)
    names = [*([f"-{letter}"] if letter else []), f"--{field.name.replace('_', '-')}", field.name]
    match main:
        case inspect.BoolType():
            return click.option(*names, is_flag=True, help=description)
        case inspect.EnumType():
            choice = click.Choice([str(each) for each in main.cls])
            return click.option(*names, type=choice, default=str(field.default), show_default=True, help=description)
        case inspect.IntType():
            metavar = _title(field) or "N"
            range_ = _NumberOrNone if metavar == "N|none" else click.IntRange
            numbers = range_(main.ge, None if main.lt is None else main.lt - 1)
            return click.option(*names, type=numbers, metavar=metavar, help=description)
        case inspect.ListType():
            return click.option(*names, multiple=True, metavar="TIME,…" if is_time else "ID,…", help=description)
        case inspect.VarTupleType():  # one value each: --tag a --tag b
            names[-2] = names[-2].removesuffix("s")
            return click.option(*names, multiple=True, metavar="TEXT", help=description)
        case inspect.DateTimeType():
            return click.option(*names, metavar="WHEN", help=description)
        case _:
            metavar = _title(field) or ("TIME" if is_time else "TEXT")
            local = local_day if metavar == "WHEN" else None
            return click.option(*names, metavar=metavar, callback=local, help=description)


class _NumberOrNone(click.IntRange):
    """A limit; ``none`` removes it, as 0 does."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return 0 if value == "none" else super().convert(value, param, ctx)


def _read(name: str, main: inspect.Type, value: Any) -> Any:
    match main:
        case inspect.DateTimeType():
            return parse_when(value, ages=False)
        case inspect.ListType():
            pieces = [piece for text in value for piece in text.split(",")]
            return [_read_piece(name, main.item_type, piece) for piece in pieces]
        case _:
            return value


def _read_piece(name: str, item: inspect.Type, text: str) -> Any:
    if isinstance(item, inspect.IntType):
        if not text.isdecimal():
            raise InvalidInput(f"--{name}: {text!r} is not an id", hint=f"Write --{name} 17,18.")
        return int(text)
    if text.isdecimal() and int(text):
        raise InvalidInput(f"--{name}: {text!r} has no unit", hint=f"It is a list of times: --{name} 10s,1m.")
    return text
