"""GPU runners through GitHub Actions: what is dispatched, how it is followed, and what may come back."""
