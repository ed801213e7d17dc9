"""Pictures for check runs: files on a branch of their own, linked by commit, because GitHub takes no upload for them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from githubkit import GitHub

from app.github.errors import NotFoundError, RejectedError, ask

ASSETS_BRANCH = "liger-bot-assets"
_README = "Pictures that liger-bot's check runs show. Nothing is built from this branch.\n"
_TRIES = 3


class Assets:
    """The assets branch of one repository."""

    def __init__(self, github: GitHub[Any], owner: str, name: str):
        self._github, self._root = github, f"repos/{owner}/{name}/git"

    async def put(self, files: Mapping[str, bytes], message: str) -> str:
        """Put files on the branch, which is made when missing; returns the commit that holds them.

        Putting the same files again makes no commit. Raises GitHubError.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return await self._put(files, message)
            except RejectedError as error:  # another process moved the branch meanwhile
                if error.status != 422 or not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def _put(self, files: Mapping[str, bytes], message: str) -> str:
        tip = await self._tip()
        entries = [await self._entry(path, data) for path, data in sorted(files.items())]
        body: dict[str, Any] = {"tree": entries}
        parents, known = [], ""
        if tip is None:
            entries.append(await self._entry("README.md", _README.encode()))
        else:
            parents = [tip]
            known = (await self._get(f"commits/{tip}"))["tree"]["sha"]
            body["base_tree"] = known
        tree = (await self._post("trees", body))["sha"]
        if tree == known and tip is not None:
            return tip
        commit = (await self._post("commits", {"message": message, "tree": tree, "parents": parents}))["sha"]
        if tip is None:
            await self._post("refs", {"ref": f"refs/heads/{ASSETS_BRANCH}", "sha": commit})
        else:
            await ask(
                self._github.arequest(
                    "PATCH", f"{self._root}/refs/heads/{ASSETS_BRANCH}", json={"sha": commit, "force": False}
                ),
                "move the assets branch",
            )
        return commit

    async def _tip(self) -> str | None:
        try:
            return (await self._get(f"ref/heads/{ASSETS_BRANCH}"))["object"]["sha"]
        except NotFoundError:
            return None

    async def _entry(self, path: str, data: bytes) -> dict[str, str]:
        blob = await self._post("blobs", {"content": base64.b64encode(data).decode(), "encoding": "base64"})
        return {"path": path, "mode": "100644", "type": "blob", "sha": blob["sha"]}

    async def _get(self, path: str) -> dict[str, Any]:
        return (
            await ask(self._github.arequest("GET", f"{self._root}/{path}"), "read the assets branch")
        ).json()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        call = self._github.arequest("POST", f"{self._root}/{path}", json=body)
        return (await ask(call, "write to the assets branch")).json()
