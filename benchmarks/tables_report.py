"""``python -m benchmarks.tables_report``: fills the tables of docs/results/tables.md."""

import json

from benchmarks import tables, tables_priors, tables_study
from benchmarks.report import RESULTS, ROOT, replace


def main() -> None:
    page = ROOT / "docs/results/tables.md"
    for kind in tables_study.KINDS:
        path = RESULTS / f"tables-study-{kind}.json"
        if path.exists():
            text = tables_study.markdown(json.loads(path.read_text())["results"])
            replace(page, f"study-{kind}", text)
    priors = json.loads(tables_priors.RESULTS.read_text())["results"]
    for kind, names in (("classifier", tables_priors.CLASSES), ("regressor", tables_priors.VALUES)):
        replace(page, f"study-priors-{kind}", tables_priors.markdown(priors, names))
    replace(page, "tables", tables.markdown(json.loads(tables.RESULTS.read_text())["results"]))


if __name__ == "__main__":
    main()
