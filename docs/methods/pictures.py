"""The pictures of the method pages: one for each, named as its page is.

    python docs/methods/pictures.py [--only NAME …] [--out FOLDER]

Every number in them comes from posterax, with fixed keys. The drawing is in
``pictures_functions.py`` and ``pictures_weights.py``, what they share in ``pictures_common.py``.
"""

import argparse
import io
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pictures_functions
import pictures_weights
from pictures_common import LOOK

SIZE, DPI = (9.0, 3.4), 110
PICTURES: dict[str, Callable[[Any], None]] = {
    draw.__name__: draw for draw in (*pictures_functions.PICTURES, *pictures_weights.PICTURES)
}


def save(draw: Callable[[Any], None], path: Path) -> None:
    """One picture, as a PNG of 128 colours: a third of the size, and no difference to be seen."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from PIL import Image

    with mpl.rc_context(LOOK):
        figure = Figure(figsize=SIZE, layout="constrained")
        draw(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, dpi=DPI)
    image = Image.open(buffer).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Draw all, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PICTURES, help="some of the methods")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the pictures show on purpose what fits warn about
    for name in options.only or PICTURES:
        start = time.perf_counter()
        path = options.out / f"{name}.png"
        save(PICTURES[name], path)
        print(f"{name}: {time.perf_counter() - start:.1f} s, {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
