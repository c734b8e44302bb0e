"""``posterax doctor``: is everything here, and does it compute what it should?"""

from typing import Annotated

import typer

from . import one_line_errors

EXAMPLES = """Examples:

posterax doctor

posterax doctor --json"""
STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of text.")] = False,
) -> None:
    """Check versions, devices and settings, and compute a few answers that are known.

    Exit code 1 where a check fails; a warning is none.
    """
    with one_line_errors():
        from .checks import all_checks
        from .showing import console, print_json

        found = []
        page = console()
        if not as_json:
            page.print(f"{'':4}  {'check':<14} what was found", style="dim")
        for check in all_checks():
            found.append(check)
            if not as_json:
                page.print(f"{check.state:<4}", style=STYLES[check.state], end="")
                page.print(f"  {check.name:<14} {check.found}", soft_wrap=True)
                if check.advice:
                    page.print(f"{'':21}→ {check.advice}", soft_wrap=True)
        states = [check.state for check in found]
        failed, warned = states.count("fail"), states.count("warn")
        if as_json:
            print_json({"ok": not failed, "checks": [check._asdict() for check in found]})
        else:
            good = f"{len(found)} checks, {warned} with a warning, {failed} failed"
            page.print(f"\n{good}" if failed or warned else f"\nall {len(found)} checks are fine")
        if failed:
            raise typer.Exit(1)
