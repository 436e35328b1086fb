"""Measures the performance figures that Redline promises. Only benchmarks measure time; tests never do."""
