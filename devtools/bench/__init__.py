"""The figures that Redline promises, measured. A benchmark prints figures; tests never wait on a clock."""
