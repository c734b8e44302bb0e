"""Figures that others have published, with where they come from."""

BDE_SOURCE = (
    "bde 1.0.2 and those beside it: the results of the paper of sklearn-contrib-bde (JOSS 2026), "
    "seeds 0 to 4 on the one split, 10 cores"
)
BDE = (  # who, RMSE and NLL on standardised targets, seconds
    ("bde, 10 chains of 4 × 16", (0.1215, -0.9126, 240), (0.2261, -0.7315, 2550)),
    ("TabPFN v2", (0.1359, -0.9338, 10), (0.2103, -0.6856, 1245)),
    ("XGBoost", (0.2025, None, 1.2), (0.2143, None, 1.9)),
    ("CatBoost, virtual ensembles", (0.2393, 0.148, 0.8), (0.2652, -0.374, 2.5)),
    ("deep ensemble of 10", (0.365, 0.176, 20), (0.288, -0.455, 40)),
)
GAP_SOURCE = (
    "The published figures are those of the notebook of DUN (Antorán et al. 2020), which has the "
    "ensemble, mean-field variational inference (MFVI) and dropout on these rows"
)
GAP = {  # test log likelihood of an ensemble, MFVI and dropout
    "Boston": (-3.11, -2.70, -4.00),
    "concrete": (-3.63, -3.46, -5.17),
    "power": (-2.90, -2.98, -3.18),
    "protein": (-3.07, -3.08, -3.46),
    "wine-red": (-1.13, -0.97, -1.27),
    "yacht": (-2.57, -2.11, -2.34),
}
ADULT_SOURCE = "report.json of TabM (Gorishniy et al. 2025), official test rows, 15 seeds"
ADULT = (  # error in percent and NLL
    ("MLP", 14.6, 0.316),
    ("TabM", 14.25, 0.308),
    ("MLP with periodic embeddings", 13.1, 0.285),
    ("TabM-mini with piecewise-linear embeddings", 13.0, 0.283),
    ("five of them", 13.0, 0.281),
)
UCI_SOURCE = (
    "Over the 20 splits of Hernández-Lobato and Adams (5 for protein): Lakshminarayanan et al. "
    "2017 for the deep ensemble, Gal and Ghahramani 2016 for MC dropout with two layers"
)
UCI = {  # RMSE and NLL: deep ensemble, MC dropout with two layers
    "Boston": ((3.28, 2.41), (2.80, 2.34)),
    "concrete": ((6.03, 3.06), (4.50, 2.82)),
    "power": ((4.11, 2.79), (3.63, 2.67)),
    "protein": ((4.71, 2.83), (3.62, 2.70)),
    "wine-red": ((0.64, 0.94), (0.60, 0.90)),
    "yacht": ((1.58, 1.18), (0.66, 1.37)),
}
