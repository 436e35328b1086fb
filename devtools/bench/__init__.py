"""`make bench`: measures the performance figures that Redline promises. Only benchmarks measure time, never tests."""
