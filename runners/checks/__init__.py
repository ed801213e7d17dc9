"""The checks, one file a family. Each file's docstring says which real bug it stands for."""
