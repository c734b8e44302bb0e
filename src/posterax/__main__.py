"""``python -m posterax``: the command line, quiet also where Ctrl-C comes before it is there."""

import errno
import gc
import sys

RARELY = 20_000  # objects made between two searches for garbage; imports make a million that stay


def main() -> None:
    """Run the command line."""
    gc.set_threshold(RARELY)
    code: int | str | None = 0
    try:
        from ._util.streams import about_output, finish_streams, open_standard_streams

        open_standard_streams()
        from .cli import app

        app(prog_name="posterax")
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:
        code = end.code
    except OSError as error:  # of a help page, say: commands tell their own
        code = 1
        if error.errno != errno.EPIPE and sys.stderr is not None:
            sys.stderr.write(f"error: {about_output(error)}\n")
    gc.freeze()  # the end of the process frees all memory anyway
    sys.exit(finish_streams(code) if isinstance(code, int) else code)


if __name__ == "__main__":
    main()
