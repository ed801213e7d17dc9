"""Checks of a model patch: what apply_liger_kernel_to_{m} does to a real, tiny model, in the sandbox."""
