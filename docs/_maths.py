"""Formulas become MathML while the site is built, so that reading them needs no script.

mkdocs calls ``on_page_content`` (``hooks:`` in mkdocs.yml). The extension arithmatex has put every
``$…$`` into a span and every ``$$…$$`` into a div by then, and kept its hands off code.
"""

import html
import re

from math_core import LatexError, LatexToMathML
from mkdocs.exceptions import PluginError

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
CONVERTER = LatexToMathML()


def on_page_content(html: str, page, **_) -> str:
    """The page's HTML with MathML for its formulas; a formula that has an error stops the build."""
    return FORMULA.sub(lambda found: mathml(found, page.file.src_uri), html)


def mathml(found: re.Match[str], page: str) -> str:
    latex = html.unescape(found["latex"]).strip()
    display = found["tag"] == "div"
    try:
        converted = CONVERTER.convert_with_local_state(latex, displaystyle=display)
    except LatexError as error:
        raise PluginError(f"{page}: the formula {latex!r} has an error: {error}") from error
    return f'<div class="formula" tabindex="0">{converted}</div>' if display else converted
