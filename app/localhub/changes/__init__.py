"""What alters the hub's state, with the webhooks that each change gives rise to.

REST routes, pages and the admin interface all change things here, so that all three look alike from outside.
"""
