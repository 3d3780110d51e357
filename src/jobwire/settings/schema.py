"""The sections and settings, read from the packages' own settings classes.

A settings class is a frozen dataclass that declares everything about its settings:

    pool_size: int = 10                               name, type, default; description below
    "How many sockets may block."
    password: str = field(default="", repr=False)     a secret is not in repr
    key: str = field(…, repr=False, metadata={"may_be_file": True})     a secret, or a path
    job_ttl_s: int = field(…, metadata={"env": "JOB_TTL_S"})     a name of the source documents
    lease_s: float = field(…, metadata={"setting": False})       no setting: passed by the caller

A type with the class method `from_setting(raw)` reads its own text, and has `shown()` for the user,
in which URLs are masked as everywhere.

A number whose name ends in `_s` is a duration in seconds, and so is a `timedelta`. Also:

    ENV_PREFIX: ClassVar = "VALKEY_"     every key of the section also has this prefix
    IGNORED: ClassVar = {"old_name": None}  accepted and ignored: any value (None), or these values
    ONE_OF: ClassVar = ("url", "address")   the one of higher precedence is used
    def check(self): yield "pool_size", "must not be negative"   faults beyond the types

Used by the other modules of this package. It reads no values.
"""

import ast
import dataclasses
import inspect
import itertools
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "JOBWIRE_"


def _is_path(value: object) -> bool:
    """Whether the value can only be a path. The rest may be a key, also one that is incomplete."""
    return isinstance(value, str) and (
        value.startswith(("/", "./", "../")) or value.endswith(".pem")
    )


@dataclass(frozen=True, slots=True)
class Leaf:
    """One setting."""

    path: str
    kind: object
    default: object
    secret: bool
    foreign_names: tuple[str, ...]
    """Its names in the environment, from the source documents."""
    may_be_file: bool = False
    """The value may also be the path of a file, which is not a secret."""

    def hides(self, value: object) -> bool:
        """Whether this value must not be shown."""
        return self.secret and not (self.may_be_file and _is_path(value))

    @property
    def name(self) -> str:
        """Its name inside of its section."""
        return self.path.rpartition(".")[2]

    @property
    def env_name(self) -> str:
        return PREFIX + self.path.replace(".", "_").upper()


@dataclass(frozen=True, slots=True)
class Section:
    """The settings of one package; the root is the section with the empty path."""

    path: str
    cls: type
    leaves: tuple[Leaf, ...]
    prefix: str
    ignored: Mapping[str, frozenset[str] | None]
    one_of: tuple[str, ...]

    def place(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def sections(root: type) -> Iterator[Section]:
    """Yield the root and each section, in the order of their declaration."""
    yield _section("", root)
    hints = typing.get_type_hints(root)
    for field in dataclasses.fields(root):
        if dataclasses.is_dataclass(hints[field.name]):
            yield _section(field.name, hints[field.name])


def values_of(settings: object, tree: Iterable[Section]) -> Iterator[tuple[Leaf, object]]:
    """Yield each setting with its value; `tree` are the sections of the class."""
    for section in tree:
        holder = getattr(settings, section.path) if section.path else settings
        for leaf in section.leaves:
            yield leaf, getattr(holder, leaf.name)


def _section(path: str, cls: type) -> Section:
    prefix: str = getattr(cls, "ENV_PREFIX", "")
    return Section(
        path=path,
        cls=cls,
        leaves=tuple(_leaves(path, cls, prefix)),
        prefix=prefix,
        ignored=getattr(cls, "IGNORED", {}),
        one_of=getattr(cls, "ONE_OF", ()),
    )


def _leaves(path: str, cls: type, prefix: str) -> Iterator[Leaf]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        is_section = dataclasses.is_dataclass(kind) and not hasattr(kind, "from_setting")
        if is_section or not field.metadata.get("setting", True):
            continue
        names = (field.metadata.get("env"), prefix + field.name.upper() if prefix else None)
        yield Leaf(
            path=f"{path}.{field.name}" if path else field.name,
            kind=kind,
            default=default_of(field),
            secret=not field.repr,
            foreign_names=tuple(name for name in names if name),
            may_be_file=field.metadata.get("may_be_file", False),
        )


def descriptions(section: Section) -> Mapping[str, str]:
    """Return the docstring below each field of the class, on one line."""
    (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(section.cls))).body
    assert isinstance(tree, ast.ClassDef)
    texts: dict[str, str] = {}
    for field, below in itertools.pairwise(tree.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                texts[section.place(name)] = " ".join(text.split())
            case _:
                pass
    return texts


def default_of(field: "dataclasses.Field[object]") -> object:
    """Return a field's default; MISSING if there is none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
