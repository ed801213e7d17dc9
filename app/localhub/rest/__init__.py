"""The REST API: one module a family of routes; what they change, they change through `app.localhub.changes`."""
