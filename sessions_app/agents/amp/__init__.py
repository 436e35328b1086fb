"""Amp's old local threads, and exports of threads: read only. Today's threads are on Amp's servers."""
