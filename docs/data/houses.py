"""The table of the README's walk: houses that do not exist, with text, dates and gaps.

python docs/data/houses.py   # writes houses.csv and new_houses.csv beside itself, seed 0

Prices grow with the area and fall with the distance to the centre, by district; their noise grows
with the area too. Three of the new houses are unlike any in houses.csv.
"""

from pathlib import Path

import numpy as np
import pandas as pd

DISTRICTS = {"harbour": 1.25, "hill": 1.1, "mills": 0.85, "station": 1.0}


def houses(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Some houses and their prices, in thousands."""
    area = rng.gamma(9, 12, rows).clip(35, 260).round()
    district = rng.choice(list(DISTRICTS), rows)
    distance = rng.gamma(2, 2, rows).round(1)
    sold = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 730, rows), "D")
    months = (sold - pd.Timestamp("2023-01-01")).days.to_numpy() / 30.4
    level = np.array([DISTRICTS[name] for name in district])
    price = level * (60 + 2.4 * area) * (1 - 0.035 * distance.clip(0, 12)) * (1 + 0.004 * months)
    price = price * (1 + 0.07 * rng.normal(size=rows))
    rooms = (area / 28 + 0.7 * rng.normal(size=rows)).round().clip(1, 9)
    return pd.DataFrame(
        {
            "area": area.astype(int),
            "rooms": rooms.astype(int),
            "district": district,
            "distance": np.where(rng.uniform(size=rows) < 0.05, np.nan, distance),
            "sold": sold.strftime("%Y-%m-%d"),
            "price": price.round().astype(int),
        }
    )


def main() -> None:
    """Write both files."""
    rng = np.random.default_rng(0)
    folder = Path(__file__).parent
    houses(400, rng).to_csv(folder / "houses.csv", index=False)
    new = houses(8, rng).drop(columns="price")
    new.loc[5:7, "area"] = [600, 150, 90]  # a palace,
    new.loc[5:7, "district"] = ["hill", "island", "station"]  # a district never seen,
    new.loc[5:7, "distance"] = [1.0, 2.5, 45.0]  # and a house far out
    new.to_csv(folder / "new_houses.csv", index=False)


if __name__ == "__main__":
    main()
