"""Routes of organizations: who belongs to a team."""

from typing import Any

from fastapi import APIRouter

from app.localhub.errors import not_accessible, not_found
from app.localhub.rest.dependencies import Read
from app.localhub.tables import TeamMember

router = APIRouter(prefix="/orgs/{org}")


@router.get("/teams/{team_slug}/memberships/{username}")
def get_team_membership(tx: Read, org: str, team_slug: str, username: str) -> dict[str, Any]:
    tx.actor.signed_in()
    if tx.actor.kind == "installation":
        granted = tx.actor.installation.permissions if tx.actor.installation else {}
        if granted.get("members") not in ("read", "write"):
            raise not_accessible("members=read")
    organization, member = tx.account(org), tx.account(username)
    row = tx.session.get(TeamMember, (organization.id, team_slug.lower(), member.id))
    if row is None:
        raise not_found()
    url = tx.links.api(f"orgs/{organization.login}/teams/{row.team}/memberships/{member.login}")
    return {"url": url, "role": "member", "state": "active"}
