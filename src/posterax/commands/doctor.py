"""``posterax doctor``: is everything here, and does it compute what it should?"""

import typer

from . import one_line_errors
from .options import AsJson

EXAMPLES = """Examples:

posterax doctor

posterax doctor --json"""
STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(as_json: AsJson = False) -> None:
    """Check versions, devices and settings, and compute a few answers that are known.

    The exit code is 1 if a check fails; warnings do not change the exit code.
    """
    with one_line_errors():
        from .checks import all_checks
        from .showing import console, print_json

        done = []
        page = console()
        if not as_json:
            page.print(f"{'':4}  {'check':<14} what was found", style="dim")
        for check in all_checks():
            done.append(check)
            if not as_json:
                page.print(f"{check.state:<4}", style=STYLES[check.state], end="")
                page.print(f"  {check.name:<14} {check.found}", soft_wrap=True)
                if check.advice:
                    page.print(f"{'':21}→ {check.advice}", soft_wrap=True)
        states = [check.state for check in done]
        failed, warned = states.count("fail"), states.count("warn")
        if as_json:
            print_json({"ok": not failed, "checks": [check._asdict() for check in done]})
        else:
            good = f"{len(done)} checks, {warned} with a warning, {failed} failed"
            page.print(f"\n{good}" if failed or warned else f"\nall {len(done)} checks are fine")
        if failed:
            raise typer.Exit(1)
