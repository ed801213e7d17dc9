"""Webhook deliveries as JSON."""

import json
from typing import Any

from app.localhub.tables import HookDelivery


def item(row: HookDelivery) -> dict[str, Any]:
    """`hook-delivery-item`."""
    return {
        "id": row.id,
        "guid": row.guid,
        "delivered_at": row.delivered_at,
        "redelivery": row.redelivery,
        "duration": row.duration,
        "status": row.status,
        "status_code": row.status_code,
        "event": row.event,
        "action": row.action,
        "installation_id": row.installation_id,
        "repository_id": row.repository_id,
        "throttled_at": None,
    }


def delivery(row: HookDelivery) -> dict[str, Any]:
    """`hook-delivery`."""
    return item(row) | {
        "url": row.app.webhook_url,
        "request": {"headers": row.request_headers, "payload": json.loads(row.payload)},
        "response": {"headers": row.response_headers, "payload": row.response_body},
    }
