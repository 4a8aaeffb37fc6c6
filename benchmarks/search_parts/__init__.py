"""The parts of ``benchmarks/search.py``: ``run(options)`` measures, ``lines(result)`` formats the result."""
