"""Every sentence that the bot posts. Pure: data -> Markdown."""
