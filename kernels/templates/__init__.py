"""Templates: kernels written by hand for what the rules can't derive, behind the same Derivation. Pure."""
