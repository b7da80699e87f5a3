"""Check every variant and every stack of an experiment, with built-in components too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headtohead.planning.lookup import PlannedRun
from headtohead.planning.plan import Plan
from headtohead.testing import INVARIANTS
from headtohead.testing.checks.as_trained import STATEMENTS, PlannedStack
from headtohead.testing.checks.before_training import examine_stack, small_verdicts, stack_key
from headtohead.testing.checks.examination import Examination, Statement


def examine_experiment(plan: Plan, stacks: Sequence[Sequence[PlannedRun]]) -> Iterator[Examination]:
    """Yield the examinations of an experiment: of each variant at small sizes, then of each kind of stack as it trains.

    Args:
        plan: The plan.
        stacks: All runs of the plan, by stack.
    """
    by_name = {invariant.name: invariant for invariant in INVARIANTS}
    for variant in plan.variants:
        if variant.record.equal_to is not None:
            continue
        longest = plan.prepared[variant.data_hash].record["longest"]
        verdicts = small_verdicts(variant.config, longest)
        results = [(by_name[name], verdict) for name, verdict in verdicts.items()]
        yield Examination(f"{variant.slug}, at small sizes", tuple(results))
    largest: dict[str, PlannedStack] = {}
    variants: dict[str, str] = {}
    for runs in stacks:
        stack = PlannedStack.of(plan, runs)
        key = stack_key(stack)
        if key not in largest or len(stack.seeds) > len(largest[key].seeds):
            largest[key] = stack
            variants[key] = ", ".join(sorted({run.variant for run in runs}))
    for key, stack in largest.items():
        yield _examine(stack, variants[key])


def _examine(stack: PlannedStack, variants: str) -> Examination:
    findings = examine_stack(stack)
    results = []
    for finding in findings.entries:
        statement = Statement(finding.name, STATEMENTS[finding.check])
        results.append((statement, finding.verdict))
    name = f"{variants}, as trained: {findings.sizes}"
    return Examination(name, tuple(results), gaps=tuple(findings.not_checked))
