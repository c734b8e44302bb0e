"""Arguments and options of the commands: types that several share, and short names for Typer's."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

Data = Annotated[
    str, typer.Argument(help="A CSV or Parquet file, or a folder of them; - is standard input.")
]
Model = Annotated[Path, typer.Argument(help="A model file.")]
Target = Annotated[str, Option("--target", "-t", help="The column to predict.")]
OtherTarget = Annotated[str | None, Option("--target", "-t", help="Default: as fitted.")]
Task = Annotated[str | None, Option(help="regression or classification (default: by the target).")]
Ignore = Annotated[str | None, Option(help="Columns to leave out: a,b,c.")]
Split = Annotated[
    str | None, Option(help="Hold out rows: random, time (the last) or group (default: by dates).")
]
Time = Annotated[str | None, Option(help="The column of times; the last rows are held out.")]
Group = Annotated[str | None, Option(help="Rows with the same value here are held out together.")]
WeightColumn = Annotated[str | None, Option(help="The column that says how often a row counts.")]
Seed = Annotated[int, Option(min=0, help="Random seed.")]
TimeLimit = Annotated[
    float | None, Option(help="Seconds for all fits together; where short, fewer steps.")
]
Quick = Annotated[bool, Option(hidden=True, help="A few steps, to try it.")]
AsJson = Annotated[bool, Option("--json", help="Print JSON instead.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print results only.")]
Force = Annotated[bool, Option("--force", help="Overwrite a file of another kind.")]
OutModel = Annotated[Path, Option("--out", "-o", help="Where the smaller model goes.")]
