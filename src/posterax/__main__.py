"""``python -m posterax``: the command line."""

from .cli import app

app(prog_name="posterax")
