"""Experiments that train recipes with several seeds and compare them on a test split.

compare   train each row with its seeds, rank the test split, compare rows with intervals over items and seeds
report    from a plan to a result: a table as Markdown and JSON, and the claims
plot      every seed of every row, and the curves on dev
"""
