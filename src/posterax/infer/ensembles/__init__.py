"""Several networks of one training or of many: ensembles, dropout, averages of weights."""
