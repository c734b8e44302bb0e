"""The docs' table of all methods: a row for each, written from what was measured."""

import json
from pathlib import Path

import posterax as px
from benchmarks import methods
from posterax.infer import Method


def test_every_method_has_a_row_and_the_page_is_as_measured():
    public = [getattr(px, name) for name in px.__all__]
    known = {type(row.method) for row in methods.TABLE.values()}
    assert known == {m for m in public if isinstance(m, type) and issubclass(m, Method)}
    result = json.loads(methods.RESULT.read_text())
    assert list(result["methods"]) == list(methods.TABLE)
    assert methods.PAGE.read_text() == methods.page(result)
    for row in methods.TABLE.values():
        assert (Path(methods.PAGE).parent / f"{row.page}.md").exists()
