"""Entry point: the group of commands, and one clear line with exit code 2 for every refusal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

import pgbb_fast
from pgbb_fast.cli import accounting, fitting
from pgbb_fast.errors import PgbbError

BAD_INPUT, DEFECT = 2, 1
LONGEST = 500  # message


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(pgbb_fast.__version__, prog_name="pgbb-fast")
def cli() -> None:
    """Bootstrap intervals under differential privacy."""


for command in (*fitting.COMMANDS, *accounting.COMMANDS):
    cli.add_command(command)


def _say(text: str) -> None:
    """One line on standard error, of a length that can be read."""
    line = " ".join(text.split())
    click.echo(line if len(line) <= LONGEST else f"{line[:LONGEST]} ...", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; refusals and bad usage end with exit code 2 and one line on standard error.

    What is neither ends with exit code 1 and the kind of error only: its text and its traceback may hold values of
    records.
    """
    try:
        code = cli.main(args=arguments, prog_name="pgbb-fast", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else str(error))
        sys.exit(BAD_INPUT)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "pgbb-fast"
        _say(f"{where}: {error.format_message()}")
        sys.exit(BAD_INPUT)
    except click.Abort:
        click.echo("pgbb-fast: interrupted; what had been trained is lost, what had been spent is spent", err=True)
        sys.exit(130)
    except PgbbError as error:
        _say(f"pgbb-fast: {error}")
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has enough
        sys.exit(0)
    except OSError as error:
        _say(f"pgbb-fast: {error.filename or 'output'}: {error.strerror}")
        sys.exit(BAD_INPUT)
    except Exception as error:
        click.echo(f"pgbb-fast: stopped by an unexpected {type(error).__name__}; please report it", err=True)
        sys.exit(DEFECT)
    sys.exit(code if isinstance(code, int) else 0)
