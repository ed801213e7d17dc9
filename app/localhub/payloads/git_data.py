"""Git objects as JSON: refs, commits, trees, blobs, contents, comparisons."""

import base64
from typing import Any
from urllib.parse import quote

from sqlalchemy import select

from app.localhub.clock import git_stamp
from app.localhub.git_objects import CommitRecord, Entry, FileChange, Signature
from app.localhub.payloads.accounts import user
from app.localhub.payloads.repositories import api_path
from app.localhub.tables import Account, Repository
from app.localhub.transaction import Transaction

UNSIGNED = {"verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None}


def _git_node_id(repository: Repository, kind: str, name: str) -> str:
    packed = base64.urlsafe_b64encode(f"{repository.id}:{name}".encode()).decode().rstrip("=")
    return f"{kind}_kwDO{packed}"


def reference(tx: Transaction, repository: Repository, ref: str, sha: str) -> dict[str, Any]:
    """`git-ref`."""
    api = tx.links.api(f"{api_path(repository)}/git")
    return {
        "ref": ref,
        "node_id": _git_node_id(repository, "REF", ref),
        "url": f"{api}/{quote(ref)}",
        "object": {"sha": sha, "type": "commit", "url": f"{api}/commits/{sha}"},
    }


def _signature(signature: Signature) -> dict[str, str]:
    return {"name": signature.name, "email": signature.email, "date": git_stamp(signature.moment)}


def git_commit(tx: Transaction, repository: Repository, record: CommitRecord) -> dict[str, Any]:
    """`git-commit`."""
    api = tx.links.api(f"{api_path(repository)}/git")
    page = tx.links.page(f"{repository.full_name}/commit")
    return {
        "sha": record.sha,
        "node_id": _git_node_id(repository, "C", record.sha),
        "url": f"{api}/commits/{record.sha}",
        "html_url": f"{page}/{record.sha}",
        "author": _signature(record.author),
        "committer": _signature(record.committer),
        "tree": {"url": f"{api}/trees/{record.tree}", "sha": record.tree},
        "message": record.message,
        "parents": [
            {"url": f"{api}/commits/{parent}", "sha": parent, "html_url": f"{page}/{parent}"}
            for parent in record.parents
        ],
        "verification": UNSIGNED,
    }


def account_by_email(tx: Transaction, email: str) -> Account | None:
    """The account that a commit's e-mail belongs to."""
    return tx.session.scalar(select(Account).where(Account.email == email))


def commit(tx: Transaction, repository: Repository, record: CommitRecord) -> dict[str, Any]:
    """`commit`, without stats and files."""
    api = tx.links.api(api_path(repository))
    page = tx.links.page(f"{repository.full_name}/commit")
    author = account_by_email(tx, record.author.email)
    committer = account_by_email(tx, record.committer.email)
    return {
        "sha": record.sha,
        "node_id": _git_node_id(repository, "C", record.sha),
        "commit": {
            "author": _signature(record.author),
            "committer": _signature(record.committer),
            "message": record.message,
            "tree": {"sha": record.tree, "url": f"{api}/git/trees/{record.tree}"},
            "url": f"{api}/git/commits/{record.sha}",
            "comment_count": 0,
            "verification": UNSIGNED,
        },
        "url": f"{api}/commits/{record.sha}",
        "html_url": f"{page}/{record.sha}",
        "comments_url": f"{api}/commits/{record.sha}/comments",
        "author": user(tx, author) if author else None,
        "committer": user(tx, committer) if committer else None,
        "parents": [
            {"sha": parent, "url": f"{api}/commits/{parent}", "html_url": f"{page}/{parent}"}
            for parent in record.parents
        ],
    }


def simple_commit(record: CommitRecord) -> dict[str, Any]:
    """`simple-commit`: the form in check suites, workflow runs and push webhooks."""
    return {
        "id": record.sha,
        "tree_id": record.tree,
        "message": record.message,
        "timestamp": git_stamp(record.committer.moment),
        "author": {"name": record.author.name, "email": record.author.email},
        "committer": {"name": record.committer.name, "email": record.committer.email},
    }


def branch(tx: Transaction, repository: Repository, name: str, record: CommitRecord) -> dict[str, Any]:
    """`branch-with-protection`."""
    api = tx.links.api(f"{api_path(repository)}/branches/{quote(name)}")
    return {
        "name": name,
        "commit": commit(tx, repository, record),
        "_links": {"self": api, "html": tx.links.page(f"{repository.full_name}/tree/{quote(name)}")},
        "protected": False,
        "protection": {
            "enabled": False,
            "required_status_checks": {"enforcement_level": "off", "contexts": [], "checks": []},
        },
        "protection_url": f"{api}/protection",
    }


def short_branch(tx: Transaction, repository: Repository, name: str, sha: str) -> dict[str, Any]:
    """`short-branch`: the form in the list of branches."""
    return {
        "name": name,
        "commit": {"sha": sha, "url": tx.links.api(f"{api_path(repository)}/commits/{sha}")},
        "protected": False,
    }


def tree(tx: Transaction, repository: Repository, sha: str, entries: list[Entry]) -> dict[str, Any]:
    """`git-tree`."""
    api = tx.links.api(f"{api_path(repository)}/git")
    items = []
    for entry in entries:
        item: dict[str, Any] = {"path": entry.path, "mode": entry.mode, "type": entry.type, "sha": entry.sha}
        if entry.type == "blob":
            item["size"] = entry.size
        if entry.type != "commit":
            item["url"] = f"{api}/{entry.type}s/{entry.sha}"
        items.append(item)
    return {"sha": sha, "url": f"{api}/trees/{sha}", "tree": items, "truncated": False}


def encoded(data: bytes) -> str:
    """Base64 with a line break every 60 characters, as GitHub sends it."""
    text = base64.b64encode(data).decode()
    return "".join(f"{text[start : start + 60]}\n" for start in range(0, len(text), 60))


def blob(tx: Transaction, repository: Repository, sha: str, data: bytes) -> dict[str, Any]:
    """`blob`."""
    return {
        "sha": sha,
        "node_id": _git_node_id(repository, "B", sha),
        "size": len(data),
        "url": tx.links.api(f"{api_path(repository)}/git/blobs/{sha}"),
        "content": encoded(data),
        "encoding": "base64",
    }


def content(tx: Transaction, repository: Repository, entry: Entry, ref: str, kind: str) -> dict[str, Any]:
    """What `content-file` and `content-directory` items share; `kind` is file, dir, symlink or submodule."""
    path = quote(entry.path)
    url = tx.links.api(f"{api_path(repository)}/contents/{path}") + f"?ref={quote(ref, safe='')}"
    page_kind = "tree" if kind == "dir" else "blob"
    html = tx.links.page(f"{repository.full_name}/{page_kind}/{quote(ref)}/{path}")
    git_kind = {"dir": "trees", "submodule": "commits"}.get(kind, "blobs")
    git_url = tx.links.api(f"{api_path(repository)}/git/{git_kind}/{entry.sha}")
    download = (
        tx.links.page(f"{repository.full_name}/raw/{quote(ref)}/{path}")
        if kind in ("file", "symlink")
        else None
    )
    return {
        "name": entry.path.rsplit("/", 1)[-1],
        "path": entry.path,
        "sha": entry.sha,
        "size": entry.size or 0,
        "url": url,
        "html_url": html,
        "git_url": git_url,
        "download_url": download,
        "type": kind,
        "_links": {"self": url, "git": git_url, "html": html},
    }


def file_change(tx: Transaction, repository: Repository, change: FileChange, head_sha: str) -> dict[str, Any]:
    """`diff-entry`."""
    path = quote(change.path)
    entry: dict[str, Any] = {
        "sha": change.sha,
        "filename": change.path,
        "status": change.status,
        "additions": change.additions,
        "deletions": change.deletions,
        "changes": change.additions + change.deletions,
        "blob_url": tx.links.page(f"{repository.full_name}/blob/{head_sha}/{path}"),
        "raw_url": tx.links.page(f"{repository.full_name}/raw/{head_sha}/{path}"),
        "contents_url": tx.links.api(f"{api_path(repository)}/contents/{path}") + f"?ref={head_sha}",
    }
    if change.patch is not None:
        entry["patch"] = change.patch
    if change.previous_path is not None:
        entry["previous_filename"] = change.previous_path
    return entry
