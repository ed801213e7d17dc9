"""Scripts that run inside the sandbox, each started by its file path. They import nothing of ours unless they say so."""
