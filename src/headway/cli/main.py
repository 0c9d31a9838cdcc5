"""The entry point: the commands put together, and one place where every error ends."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from headway.base.errors import HeadwayError, WrongUsage
from headway.cli.commands.bench import bench
from headway.cli.commands.calibrate import calibrate
from headway.cli.commands.config import config
from headway.cli.commands.data import data
from headway.cli.commands.demo import demo
from headway.cli.commands.explain import explain
from headway.cli.commands.migrate import migrate
from headway.cli.commands.pause import continue_run, pause
from headway.cli.commands.remove import remove
from headway.cli.commands.resume import resume
from headway.cli.commands.run import run
from headway.cli.commands.runs import runs
from headway.cli.commands.show import show
from headway.cli.commands.suspend import suspend
from headway.cli.commands.vacate import vacate
from headway.cli.interrupts import INTERRUPTED, interrupts
from headway.cli.output import error_object, print_error, print_json, stderr

OUR_BUG = 70
BROKEN_PIPE = 141

app = typer.Typer(
    name="headway",
    help="SQL on Spark that keeps the progress it has made.",
    epilog=(
        "Exit codes: 0 done, 1 a query failed, 2 wrong usage, 3 late, 4 suspended, 130 interrupted."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _examples(*lines: str) -> str:
    """An epilog whose lines stay apart, which is what the \\b asks for."""
    return "\b\nExamples:\n" + "\n".join(f"  headway {line}" for line in lines)


app.command(
    epilog=_examples(
        "run q1.sql q2.sql --tables data/",
        "run report.sql --tables data/ --out results/",
        "run reports/*.sql --tables data/ --deadline 5m",
        "run long.sql --tables data/ --snapshot-every auto --on-preemption suspend",
        'run --sql "SELECT count(*) FROM sales" --tables data/ --json',
    )
)(run)
app.command(
    epilog=_examples("resume last --tables data/", "resume last --tables data/ --deadline 5m")
)(resume)
app.command(epilog=_examples("suspend last", "suspend last --now", "suspend last --within 20s"))(
    suspend
)
app.command(
    epilog=_examples(
        "migrate last --to spark://host:7077 --tables data/",
        "migrate last --to 'local[8]' --tables data/ --within 20s",
    )
)(migrate)
app.command(epilog=_examples("pause last"))(pause)
app.command("continue", epilog=_examples("continue last"))(continue_run)
app.command(epilog=_examples("vacate", "vacate --within 20s"))(vacate)
app.command(
    epilog=_examples(
        "explain q1.sql --tables data/",
        "explain reports/*.sql --tables data/ --deadline 5m --picture batch.svg",
    )
)(explain)
app.command(epilog=_examples("runs", "runs --store s3://bucket/headway --json"))(runs)
app.command(epilog=_examples("show last", "show last --rows q1", "show last --plan q1"))(show)
app.command(epilog=_examples("remove last", "remove 20260301-101500-1a2b3c --yes"))(remove)
app.command(epilog=_examples("calibrate", "calibrate --master spark://host:7077"))(calibrate)
app.command(epilog=_examples("data tpch --scale 0.1 --out data/tpch"))(data)
app.command(epilog=_examples("bench", "bench plan --json"))(bench)
app.command(epilog=_examples("demo", "demo --scale 0.2"))(demo)
app.command(epilog=_examples("config", "config --set run.parallel_queries=2"))(config)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"headway {version('headway')}")
        raise typer.Exit


@app.callback()
def _headway(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    return


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of libraries, about their own future
    if not logging.root.handlers:
        logging.root.addHandler(logging.NullHandler())  # py4j logs an interrupt with its stack
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8
    command = typer.main.get_command(app)
    as_json = "--json" in given
    with interrupts:
        try:
            with command.make_context("headway", given) as context:
                command.invoke(context)
            sys.stdout.flush()
        except typer.Exit as end:
            return end.exit_code
        except typer.Abort:
            print("nothing was done", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        except BrokenPipeError:
            # Whoever read our output is gone; Python must not complain about that at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except HeadwayError as error:
            return _tell(error, as_json=as_json)
        except typer.TyperException as error:
            return _tell(_usage(error), as_json=as_json)
        except Exception as error:  # noqa: BLE001 - whatever is left is our own bug
            return _tell_bug(error, as_json=as_json)
    return 0


def _usage(error: typer.TyperException) -> WrongUsage:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "headway"
    message = error.format_message().strip()
    return WrongUsage(message[:1].lower() + message[1:].rstrip("."), hint=f"see {path} --help")


def _tell(error: HeadwayError, *, as_json: bool) -> int:
    print_error(error)
    if as_json:
        print_json({"error": error_object(error)})
    return error.exit_code


def _tell_bug(error: Exception, *, as_json: bool) -> int:
    handle, path = tempfile.mkstemp(prefix="headway-error-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    lines = str(error).splitlines()
    first = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    hint = f"the whole story is in {path}; please report it"
    stderr().print(
        f"INTERNAL_ERROR: {first}; this is a bug in Headway\nHint: {hint}", soft_wrap=True
    )
    if as_json:
        told = {"name": "INTERNAL_ERROR", "message": first, "hint": hint}
        print_json({"error": told})
    return OUR_BUG


if __name__ == "__main__":
    sys.exit(main())
