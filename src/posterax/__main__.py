"""``python -m posterax``: the command line, quiet also where Ctrl-C comes before it is there."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from .cli import app
    except KeyboardInterrupt:
        sys.exit(130)
    app(prog_name="posterax")


if __name__ == "__main__":
    main()
