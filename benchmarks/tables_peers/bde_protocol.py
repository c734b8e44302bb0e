"""``python -m benchmarks.tables_peers.bde_protocol``: airfoil and bike sharing as bde has them.

The published split, inputs and targets standardised by its training rows, seeds 0 to 4, and the
likelihood of a Gaussian with the predicted mean and deviation. Prints the table with what is
published.
"""

from benchmarks.tables_peers import cells, data
from benchmarks.tables_peers.run import arguments, fill, planned
from benchmarks.tables_peers.store import Store
from benchmarks.tables_peers.summary import groups


def main() -> None:
    parser = arguments(__doc__)
    parser.set_defaults(group="bde", contenders=["posterax", "catboost", "catboost-virtual"])
    options = parser.parse_args()
    fill(planned(options), options)
    print(cells.protocol(groups(Store(options.out).runs(), data.names("bde"))))


if __name__ == "__main__":
    main()
