"""The group of commands: it imports a command when it runs, and prints errors as one line."""

from __future__ import annotations

import importlib
import logging
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from headtohead import logs
from headtohead.cli import interruption
from headtohead.errors import (
    HeadToHeadError,
    Interrupted,
    is_disk_error,
    machine_limit,
    nearest,
    suggestion,
)
from headtohead.escaping import VisibleFormatter, single_line
from headtohead.plugins.commands import plugin_commands
from headtohead.synonyms import synonyms
from headtohead_judge.output import echo

COMMANDS = {
    "run": "Train the runs of an experiment file and report the answer.",
    "plan": "Show the runs, their states and their cost, without training.",
    "status": "Show the state of every run of an experiment.",
    "list": "List the experiments: runs, states, size, last change.",
    "show": "Show a run: scores, files, configuration.",
    "report": "Write the report of an experiment.",
    "sync": "Log missing runs to MLflow or to loggers.",
    "judge": "Judge the scores of any training code: better, worse or noise.",
    "reproduce": "Retrain a finished run and compare weights and scores.",
    "check": "Check the invariants of plugins.",
    "plugins": "List plugins, or describe a plugin.",
    "new-plugin": "Create a plugin package from a copy of a built-in plugin.",
    "card": "Judge the component of a plugin file on five tasks, on one page.",
    "new-experiment": "Write a commented experiment file for a dataset.",
    "generate": "Translate sentences, or continue a text, with a trained run.",
    "ablate-heads": "Measure the effect of masking each attention head.",
    "data": "Download datasets and describe them.",
    "export": "Write a run as a model folder with a model card.",
    "clean": "Remove archived, superseded and failed runs, and caches.",
    "skill": "Print instructions for coding agents.",
    "doctor": "Check the installation, the machine and the stores.",
}
"""Commands and their summaries. ``h2h --help`` prints these without importing the commands."""

MISSING_ARGUMENTS = {
    ("plan", "EXPERIMENT"): "h2h new-experiment writes an experiment file",
    ("run", "EXPERIMENT"): "h2h new-experiment writes an experiment file",
    ("*", "EXPERIMENT"): "h2h list prints the experiments",
    ("*", "RUN"): "h2h status EXPERIMENT prints the runs",
    ("*", "DATASET"): "h2h plugins lists the datasets",
}
"""How to find the value of a missing argument, by command and argument; ``*`` is any other command."""

BROKEN_PIPE = 141
"""Exit code if the reader of the output has ended, as in ``h2h status | head -1``; as in shells."""

log = logging.getLogger(__name__)


def summaries() -> dict[str, str]:
    """Return the summary of every command by name, those of plugins last."""
    listed = dict(COMMANDS)
    for name, (_, summary) in plugin_commands(frozenset(COMMANDS)).items():
        listed[name] = summary
    return listed


def stop_with_usage_error(error: click.UsageError) -> NoReturn:
    """Print click's error as a single line and exit with code 2; print the help where no argument was given."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        raise error
    message = single_line(error.format_message()).removesuffix(".")  # may quote a file name
    if isinstance(error, click.NoSuchOption) and error.ctx:
        message = f"no such option '{error.option_name}'{_suggest_option(error.option_name, error.ctx.command)}"
    elif isinstance(error, click.MissingParameter) and error.ctx and error.param:
        argument = error.param.make_metavar(error.ctx)
        advice = MISSING_ARGUMENTS.get((str(error.ctx.info_name), argument))
        advice = advice or MISSING_ARGUMENTS.get(("*", argument))
        if advice:
            message += f"; {advice}"
    elif "unexpected extra argument" in message and error.ctx:
        message += _suggest_instead_of_argument(message, error.ctx.command)
    command = error.ctx.command_path if error.ctx else "h2h"
    echo(f"h2h: {message[0].lower()}{message[1:]} (options: {command} --help)", err=True)
    sys.exit(2)


def _suggest_instead_of_argument(message: str, command: click.Command) -> str:
    """Return what to type instead of an argument too many, from the error that quotes it."""
    options = [option for parameter in command.params for option in parameter.opts]
    if "=" in message:
        return "; to set a field, type --set PATH=VALUE"
    if ".yaml" in message:
        return "; name a single experiment file"
    if "--baseline" in options:
        return "; to name the baseline, type --baseline VARIANT"
    return ""


def _suggest_option(name: str, command: click.Command) -> str:
    """Return what an unknown option may stand for: another option, or a field for --set."""
    for other in synonyms(name):
        if other in COMMANDS and other != command.name:
            return f"; type h2h {other}"
    options: list[str] = []
    for parameter in command.params:
        options += [option for option in parameter.opts if option.startswith("--")]
    if "--set" in options and not set(synonyms(name)) & set(options):
        from headtohead.config.validation_errors import find_field

        field = find_field(name.lstrip("-").replace("-", "_"))
        if field is not None:
            return f"; type --set {field}=VALUE"
    similar_option = suggestion(name, options)
    if not similar_option and isinstance(command, click.Group):
        return "; type options of a command after its name"
    return similar_option


class SuggestingGroup(click.Group):
    """A group that suggests a command for an unknown command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        commands = self.list_commands(ctx)
        name = args[0] if args else "-"
        if name.startswith("-") or name in commands:
            return super().resolve_command(ctx, args)
        hint = nearest(name, commands)
        if name.endswith((".yaml", ".yml")) and "run" in commands:
            hint = f"; type h2h run {shlex.quote(name)}"
        raise HeadToHeadError(f"unknown command '{name}'{hint}")


class LazyGroup(SuggestingGroup):
    """A group that imports commands lazily and prints an error of its user as a single line with exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        # `list` may be the command of that name, a module of this package, instead of the built-in function.
        return [*summaries()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            path = f"headtohead.cli.{cmd_name.replace('-', '_')}:command"
        elif cmd_name in summaries():
            path, _ = plugin_commands(frozenset(COMMANDS))[cmd_name]
        else:
            return None
        module, _, attribute = path.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*summaries().items()])

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:  # an option before the command
            stop_with_usage_error(error)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke_interruptible(ctx)
        except click.UsageError as error:
            stop_with_usage_error(error)
        except KeyboardInterrupt as error:  # click would print "Aborted!"
            if not isinstance(error, Interrupted):
                echo(interruption.MESSAGE, err=True)
            sys.exit(interruption.EXIT_CODE)
        except BrokenPipeError:  # click would exit with 1, the code of a verdict
            sys.exit(BROKEN_PIPE)
        except Exception as error:
            log.info("the command ends with an error", exc_info=True)
            if interruption.was_raised():
                interruption.exit_now()
            if isinstance(error, EOFError):  # click would exit with 1
                raise RuntimeError(f"EOFError: {error}") from error
            message = _user_error(error)
            if message is None:
                raise
            echo(f"h2h: {message}", err=True)
            sys.exit(2)

    def _invoke_interruptible(self, ctx: click.Context) -> Any:
        """Invoke the command, in which Ctrl-C raises KeyboardInterrupt."""
        try:
            interruption.raise_interrupts()
            return super().invoke(ctx)
        finally:
            interruption.exit_at_interrupts()


def _user_error(error: Exception) -> str | None:
    """Return the message of an error that the user can fix, or None for other errors."""
    if isinstance(error, HeadToHeadError):
        return str(error)
    reason = " ".join(str(error).split())
    remedy = machine_limit(error)
    if remedy:
        return (
            f"a limit of this machine is reached ({reason or type(error).__name__}); {remedy}, then run the same "
            "command; finished runs are kept"
        )
    if is_disk_error(error):
        return (
            f"cannot read or write a file ({reason}); free disk space or correct the permissions, then run the same "
            "command"
        )
    return None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headtohead", prog_name="h2h")
@click.option("-v", "--verbose", count=True, help="Log steps to standard error; -vv also details.")
@click.option(
    "--log-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append the log to FILE, that of workers too.",
)
def main(verbose: int, log_file: Path | None) -> None:
    """Run controlled comparisons of Transformer components, each defined in an experiment file."""
    if logging.lastResort is not None:  # prints the warnings of headtohead's loggers
        logging.lastResort.setFormatter(VisibleFormatter())
    logs.configure(verbose, log_file)
    log.info("h2h %s", shlex.join(sys.argv[1:]))
