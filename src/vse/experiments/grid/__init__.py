"""Experiments that train recipes and compare them on a test split: the plan, the runs, the comparison, the report.

plan      which recipes, and what the paper says about them
runs      train each with its seeds, several at once, none twice
measure   the ranks of a trained model on the test split, kept beside it
compare   means over seeds, paired differences with intervals
report    a table as text, Markdown and JSON, and the claims
plot      every seed of every row, and the curves on dev
"""
