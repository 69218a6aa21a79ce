"""The reference: a page for each topic and module, with an entry for every public name.

Nothing here is written by hand: signatures and texts are those of the objects, facts those of the ops.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import weft
from docs_tools.docstrings import escaped, to_markdown
from docs_tools.facts import Facts, facts_of
from docs_tools.peers import called, versions
from docs_tools.public import modules, names_of
from docs_tools.signatures import signature_of
from docs_tools.topics import NETWORK_TOPIC, TOPICS, Topic, topic_of
from weft.base.elsewhere import Missing
from weft.base.names import MODULES, NETWORK, OTHERS, homes
from weft.base.spelling import MEANT_OTHERWISE
from weft.ops.op import Container
from weft.tensor.published import FUNCTIONS

# Modules whose functions are made of ops.
OF_TENSORS = ("weft", "weft.fft", "weft.linalg", "weft.nn.functional", "weft.random", "weft.special")
_PLAIN = ("__call__", "__getitem__", "__len__", "__iter__")


class Entry(NamedTuple):
    """One name of the reference: its full path, and the Markdown about it."""

    path: str
    text: str


class Page(NamedTuple):
    """A page of the reference."""

    file: str
    title: str
    intro: str
    entries: list[Entry]

    def markdown(self) -> str:
        """The text of the page."""
        listed = "\n\n".join(entry.text for entry in self.entries)
        return f"# {self.title}\n\n{self.intro}\n\n{listed}\n"


def pages() -> list[Page]:
    """All pages but the first one."""
    return [*_topic_pages(), _tensor_page(), *[_module_page(name) for name in modules()[1:]]]


def write(folder: Path) -> list[Page]:
    """Write all pages to a folder; gives them."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for page in made:
        (folder / f"{page.file}.md").write_text(page.markdown())
    (folder / "index.md").write_text(_first_page(made))
    return made


def _first_page(made: list[Page]) -> str:
    count = sum(len(page.entries) for page in made)
    told = " and ".join(f"{title} {versions()[key]}" for key, title in (("torch", "PyTorch"), ("jax", "JAX")))
    own = [page for page in made if not page.file.startswith("weft.")]
    groups = (("Names of weft", own), ("Modules", [page for page in made if page not in own]))
    text = f"# Reference\n\n{_ABOUT.format(count=count, told=told)}\n"
    for title, some in groups:
        rows = "".join(f"| [{page.title}]({page.file}.md) | {_listed(page)} |\n" for page in some)
        files = "\n".join(page.file for page in some)
        text += (
            f"\n## {title}\n\n| page | names |\n|---|---|\n{rows}\n```{{toctree}}\n:hidden:\n\n{files}\n```\n"
        )
    return text


_ABOUT = """\
Every public name, {count} entries, with its signature and an example that the tests run. Functions of
tensors also say what their ops declare: whether there is a gradient and by which rule, which dtypes they
take, and where they run. Operators of ONNX are those that an export of the function writes; names of
{told} are those that these packages have. A name that is the same need not mean the same in all details:
[Coming from PyTorch, JAX, NumPy](../coming-from.md) lists what differs.

"compiled" means machine code of weft's own; "by a library" that compiled programs call NumPy or SciPy for
that op; "kernels" that a GPU runs it; "on the host, between copies" that it does not, and its values go
to the processor and back."""


def _listed(page: Page) -> str:
    names = [entry.path.rpartition(".")[2] for entry in page.entries]
    more = f", … {len(names)} in all" if len(names) > 6 else ""
    return ", ".join(f"`{name}`" for name in names[:6]) + more


# Pages


def _topic_pages() -> Iterator[Page]:
    found: dict[Topic, list[str]] = {topic: [] for topic in (*TOPICS, NETWORK_TOPIC)}
    for name, home in home_modules().items():
        found.setdefault(topic_of(home) if home else NETWORK_TOPIC, []).append(name)
    for topic, names in found.items():
        intro = f"Names of `weft` itself: {', '.join(_link('weft', n) for n in sorted(names))}."
        yield Page(topic.file, topic.title, intro, list(_entries("weft", sorted(names))))


def home_modules() -> dict[str, str]:
    """Every name of weft but its modules, with the module that defines it, "" for layers as functions."""
    network = homes(NETWORK)
    found = dict.fromkeys(network, "")
    others = {name: home.module for name, home in homes(OTHERS).items()}
    found |= {name: module for name, module in others.items() if name not in network}
    found |= {name: "weft.tensor.functions" for name in FUNCTIONS if name not in found and "::" not in name}
    found |= {"__version__": "weft.versions", "__array_api_version__": "weft.versions"}
    submodules = homes(modules=MODULES)
    return {name: home for name, home in found.items() if name not in submodules and name in names_of("weft")}


def _module_page(module: str) -> Page:
    space = import_module(module)
    names = [n for n in names_of(module) if not isinstance(getattr(space, n), ModuleType)]
    listed = ", ".join(_link(module, name) for name in names)
    text = to_markdown(inspect.getdoc(space) or "") + (f"\n\nNames: {listed}." if names else "")
    return Page(module, module, text, list(_entries(module, names)))


def _tensor_page() -> Page:
    """Methods of Tensor: those that are functions of weft too are told there."""
    entries = []
    for name in sorted(vars(weft.Tensor) | vars(weft.Tensor.__mro__[1])):
        value = inspect.getattr_static(weft.Tensor, name)
        if name.startswith("_") or isinstance(value, Missing):
            continue
        entries.append(Entry(f"weft.Tensor.{name}", _method("weft.Tensor", name, value)))
    intro = to_markdown(inspect.getdoc(weft.Tensor) or "")
    return Page("tensor-methods", "Methods of Tensor", intro, entries)


# Entries


def _entries(module: str, names: list[str]) -> Iterator[Entry]:
    for name in names:
        value = getattr(import_module(module), name)
        yield Entry(f"{module}.{name}", _entry(module, name, value))


def _entry(module: str, name: str, value: Any) -> str:
    path = f"{module}.{name}"
    elsewhere = _defined_elsewhere(module, name, value)
    if elsewhere:
        return _directive("py:function" if callable(value) else "py:data", path + _brief(value), elsewhere)
    if isinstance(value, type):
        return _class(module, name, value)
    if not callable(value):
        return _directive("py:data", path, _constant(value))
    body = [to_markdown(inspect.getdoc(value) or ""), _facts(module, name, value)]
    return _directive("py:function", path + signature_of(value), "\n\n".join(part for part in body if part))


def _defined_elsewhere(module: str, name: str, value: Any) -> str:
    """What to say of another name for something that has its entry under the first one; "" of that one."""
    if isinstance(value, int | float | str | type(None)):
        return ""
    if module != "weft" and name in names_of("weft") and getattr(weft, name) is value:
        return f"The same as {_link('weft', name)}."
    own = getattr(value, "__name__", "")
    first = own if own in names_of(module) else name
    space = import_module(module)
    if first != name and getattr(space, first) is value:
        return f"Another name of {_link(module, first)}."
    if (
        not callable(value)
        and module == "weft"
        and name in ("half", "double", "short", "long", "float", "int")
    ):
        return f"Another name of {_link('weft', str(getattr(value, 'name', name)))}."
    return ""


def _brief(value: Any) -> str:
    return signature_of(value) if callable(value) and not isinstance(value, type) else ""


def _link(module: str, name: str) -> str:
    return f"{{py:obj}}`{name} <{module}.{name}>`"


def _constant(value: Any) -> str:
    if hasattr(value, "itemsize"):
        return f"A dtype of {value.itemsize} byte{'s' * (value.itemsize > 1)} an element."
    if isinstance(value, tuple):
        listed = "".join(f"\n1. `{getattr(x, 'name', x)}`" for x in value)
        return f"In this order:\n{listed}"
    text = inspect.getdoc(type(value)) if type(value).__module__.startswith("weft") else ""
    return to_markdown(text) if text else f"`{value!r}`, a {type(value).__name__}."


def _class(module: str, name: str, value: type) -> str:
    text = to_markdown(inspect.getdoc(value) or "")
    members = _members(value)
    own = [n for n, member in members.items() if _is_told(n, member)]
    methods = [_method(f"{module}.{name}", n, members[n]) for n in sorted(own)]
    if issubclass(value, tuple):
        methods = []
    if value is weft.Tensor:
        methods = ["[Its methods](tensor-methods.md) have a page of their own."]
    return _directive(
        "py:class",
        f"{module}.{name}{signature_of(value)}",
        "\n\n".join(part for part in (text, _facts(module, name, value), *methods) if part),
        fence=5,
    )


def _members(value: type) -> dict[str, Any]:
    """What a class has of its own; of a container also what all such have, since no entry tells it."""
    kinds = [k for k in reversed(value.__mro__) if k is value or issubclass(k, Container)]
    return {name: member for k in kinds for name, member in vars(k).items()}


def _is_told(name: str, member: Any) -> bool:
    """Whether a member of a class is a method or property with a text of its own."""
    kinds = (property, classmethod, staticmethod)
    public = not name.startswith("_") or name in _PLAIN
    return (
        public and (inspect.isfunction(member) or isinstance(member, kinds)) and bool(_plain(member).__doc__)
    )


def _plain(value: Any) -> Any:
    """The function behind a method of a class."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def _method(owner: str, name: str, value: Any) -> str:
    plain = _plain(value)
    same = name if name in names_of("weft") else name.removesuffix("_")
    text = to_markdown(inspect.getdoc(plain) or "") if plain is not None else ""
    if owner == "weft.Tensor" and same in names_of("weft") and callable(getattr(weft, same)):
        place = f"{_link('weft', same)} of the tensor"
        told = f"In place: {place}." if same != name else f"{place}."
        text = text if text and ">>>" not in text and same == name else told
    if isinstance(value, property) or not callable(plain):
        return _directive("py:attribute", f"{owner}.{name}", text or "An attribute.")
    bound = not isinstance(value, staticmethod)
    if name.endswith("_") and owner == "weft.Tensor":  # one in place takes what its name without _ takes
        plain = getattr(weft.Tensor, name[:-1], plain)
    return _directive("py:method", f"{owner}.{name}{signature_of(plain, method=bound)}", text or "A method.")


def _directive(kind: str, argument: str, body: str, *, fence: int = 4) -> str:
    colons = ":" * fence
    return f"{colons}{{{kind}}} {argument}\n\n{body}\n{colons}"


# Facts


def _facts(module: str, name: str, value: Any) -> str:
    """A table of what is known about a function of tensors; "" of other things."""
    rows: list[tuple[str, str]] = []
    found: Facts | None = None
    if not isinstance(value, type) and module in OF_TENSORS:
        found = facts_of(name, value)
    if found is not None:
        rows += [("gradient", found.gradient), ("dtypes", found.dtypes)]
        rows += [("CPU", found.cpu), ("GPU", found.gpu), ("ONNX", found.onnx)]
    if module != "weft" or not isinstance(value, type):
        rows += [(peer, f"`{path}`") for peer, path in called(module, name).items()]
    plain = inspect.unwrap(value)
    if f"{plain.__module__}.{plain.__name__}" in MEANT_OTHERWISE:
        rows.append(
            ("differs", "[the method means something else](../coming-from.md#whose-meaning-a-name-has)")
        )
    told = "".join(f"| {key} | {_cell(text)} |\n" for key, text in rows if text)
    return f"| | |\n|---|---|\n{told}" if told else ""


def _cell(text: str) -> str:
    return escaped(text) if "](" not in text else text
