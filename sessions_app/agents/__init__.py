"""The agents whose sessions Redline reads: one folder for each, with all that is known of its files.

Everything else asks the `Agent` objects in `registry`, which have the shape that `base` describes.
"""
