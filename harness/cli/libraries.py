"""`rlbench systems`: installs what systems of other people's libraries need, and removes it."""

from __future__ import annotations

from typing import Annotated

import typer

libraries = typer.Typer(
    no_args_is_help=True,
    suggest_commands=False,
    help="Install what systems of other people's libraries need.",
)

Names = Annotated[list[str], typer.Argument(help="Libraries or systems: sample-factory rllib sb3; or all.")]


@libraries.command()
def install(names: Names) -> None:
    """Install libraries, each in a virtual environment of its own in the cache folder."""
    from rlbench.harness.commands.run import install_libraries

    install_libraries(names)


@libraries.command()
def remove(names: Names) -> None:
    """Remove what `install` has made."""
    from rlbench.harness.commands.run import remove_libraries

    remove_libraries(names)
