"""``check`` in the notebook, the run under nbval, and the reports."""
