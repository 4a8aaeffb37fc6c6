"""The parts of ``benchmarks/search.py``, one question each: ``run(options)`` measures, ``lines(result)`` tells it."""
