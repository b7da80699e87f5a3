"""Ask the zoo, and write docs/internals/zoo.md: ``python tests/contract/zoo/page.py``."""

import importlib.util
import re
import sys
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from headtohead.plugins import registry as plugin_registry
from headtohead.plugins.registry import load_registry
from headtohead.testing import INVARIANTS, Subject, tiny_config
from headtohead.testing.smallest import smallest
from headtohead.tools.pitfalls.configurations import check_configurations
from headtohead.tools.pitfalls.examination import evaluate

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "zoo.md"
FAMILIES = ("positional", "attention", "masking")
BY_NAME = {one.name: one for one in INVARIANTS}

HEAD = """# The zoo of faults

Made by `python tests/contract/zoo/page.py`: entries and changes of the core with one realistic
fault each, those of public code with the place where they were seen. Every one is caught by the
invariant that should catch it; a test asks all of them again, and holds this page true.
`h2h check --plugin tests/contract/zoo/masking.py` shows what an author would see.

**Caught: {caught} of {faults}. False alarms: {alarms}** over {sound} sound entries: those of the
registry, beside plain choices, and the unusual ones of `tests/contract/zoo/sound.py`.
Asking the zoo took {seconds:.0f} s of one CPU, examples included.

The number is what the invariant measured at its usual sizes; the example is the smallest that shows
the fault.
"""


@dataclass(frozen=True)
class Fault:
    """One fault: where it lives, what it is, and who must see it."""

    family: str
    name: str
    what: str
    seen: str
    caught_by: tuple[str, ...]
    config: dict
    planted: object = nullcontext


@dataclass(frozen=True)
class Caught:
    """What the invariants said of one fault."""

    fault: Fault
    verdicts: dict
    example: str


def faults():
    """Return all faults, in the order of their files."""
    return [*(one for family in FAMILIES for one in _entries(family)), *_core()]


@contextmanager
def registered():
    """Let the zoo's entries, wrong and sound, be those of the process."""
    before = plugin_registry._current
    files = [HERE / f"{name}.py" for name in (*FAMILIES, "sound")]
    plugin_registry._current = load_registry(files=files)
    try:
        yield plugin_registry._current
    finally:
        plugin_registry._current = before


def caught(fault, with_example=True):
    """Ask the invariants that must see a fault, and let the first show the smallest example."""
    with torch.random.fork_rng(devices=[]), fault.planted():
        torch.manual_seed(0)
        subject = Subject(tiny_config(**fault.config))
        verdicts = {name: evaluate(BY_NAME[name], subject) for name in fault.caught_by}
        first = fault.caught_by[0]
        example = ""
        if with_example and verdicts[first].state == "broken":
            example = smallest(BY_NAME[first], subject, verdicts[first]).shown
        return Caught(fault, verdicts, example or verdicts[first].reason)


def alarms(registry, entries=None):
    """Return what is broken by no name among entries that are sound."""
    found = {}
    for one in sound_entries(registry) if entries is None else entries:
        _, config = next(check_configurations(one, registry))
        subject = Subject(config)
        for invariant in INVARIANTS:
            verdict = evaluate(invariant, subject)
            if verdict.state == "broken" and verdict.because is None:
                found[f"{one.family}/{one.name}", invariant.name] = verdict
    return found


def sound_entries(registry):
    """Return the entries of the registry that have no fault, but for those of one role."""
    return [one for one in registry.all() if one.family in FAMILIES and "caught_by" not in vars(one.entry)]


def page():
    """Ask everything and return the page."""
    torch.set_num_threads(1)
    began = time.process_time()
    with registered() as registry:
        found = [caught(one) for one in faults()]
        seconds = time.process_time() - began
        wrong = alarms(registry)
        sound = len(sound_entries(registry))
    right = sum(all(one.state == "broken" for one in each.verdicts.values()) for each in found)
    head = HEAD.format(caught=right, faults=len(found), alarms=len(wrong), sound=sound, seconds=seconds)
    return "\n".join([head, *_sections(found)])


def without_time(text):
    """Return a page without what differs from run to run."""
    return re.sub(r"took \d+ s", "took some time", text)


def _sections(found):
    for family in (*FAMILIES, "core"):
        yield f"## {family.capitalize()}\n"
        yield "| fault | seen in public code | caught by | number | smallest example |"
        yield "|---|---|---|---|---|"
        for one in found:
            if one.fault.family == family:
                yield _row(one)
        yield ""


def _row(one):
    number = one.verdicts[one.fault.caught_by[0]].number
    cells = [
        f"`{one.fault.name}`: {one.fault.what}",
        one.fault.seen,
        ", ".join(f"`{name}`" for name in one.fault.caught_by),
        "raised" if number is None and "raised" in one.example else "–" if number is None else f"{number:.1g}",
        one.example,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _entries(family):
    for name, entry in _load(family)[family].items():
        yield Fault(
            family,
            name,
            entry.__doc__,
            vars(entry).get("seen", ""),
            entry.caught_by,
            {
                family: {"name": name, **getattr(entry, "options", {})}
                if isinstance(getattr(entry, "options", None), dict)
                else name,
                **getattr(entry, "beside", {}),
            },
        )


def _core():
    module = _module("core")
    for one in module.FAULTS:
        yield Fault(
            "core",
            re.sub("(?<!^)(?=[A-Z])", "-", one.__name__).lower(),
            one.__doc__,
            one.seen,
            one.caught_by,
            one.beside,
            one.planted,
        )


def _load(family):
    module = _module(family)
    return {family: getattr(module, f"register_{family}s")()}


def _module(name):
    unique = f"zoo_{name}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, HERE / f"{name}.py")
        sys.modules[unique] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[unique])
    return sys.modules[unique]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
