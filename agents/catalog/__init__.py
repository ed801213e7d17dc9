"""Known ops, as data: one Markdown file each under references/, read as text and never executed here."""
