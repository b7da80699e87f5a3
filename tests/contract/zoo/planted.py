"""A decorator that plants a fault in one method of a registered entry."""

import inspect


def fault(base, method, caught_by, **attributes):
    """Return a decorator that turns a function into an entry with a fault.

    Args:
        base: The entry without a fault, which the new class extends.
        method: Name of the method that the function replaces; its docstring names the fault.
        caught_by: Names of the invariants that must detect the fault, separated by spaces.
        **attributes: Other attributes of the class: ``found_in``, public code with the fault; ``config``, arguments of
            ``tiny_config``; attributes of the base class.
    """

    def subclass(function):
        is_classmethod = isinstance(inspect.getattr_static(base, method), classmethod)
        body = {
            method: classmethod(function) if is_classmethod else function,
            "caught_by": tuple(caught_by.split()),
        }
        names = {"__doc__": function.__doc__, "__module__": function.__module__}
        return type(function.__name__, (base,), {**names, **body, **attributes})

    return subclass
