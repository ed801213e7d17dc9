"""What the git store gives and takes: commits, tree entries, file changes; and which names git would accept."""

import re
from dataclasses import dataclass
from datetime import datetime

import git
from git.objects import Commit

SHA = re.compile(r"[0-9a-f]{40}")
REF = re.compile(
    r"refs/(heads|tags|pull)/(?!.*(\.\.|//|@\{|\.lock(/|$)|/\.))[^\s~^:?*\[\\\x00-\x20\x7f.-][^\s~^:?*\[\\\x00-\x20\x7f]*(?<![./])"
)
NO_COMMIT = "0" * 40


class GitError(Exception):
    """What was asked of git can't be done; the message is fit for an API reply."""


@dataclass(frozen=True)
class Signature:
    """Who made a commit and when."""

    name: str
    email: str
    moment: datetime


@dataclass(frozen=True)
class CommitRecord:
    """A commit, read."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    message: str
    author: Signature
    committer: Signature


@dataclass(frozen=True)
class Entry:
    """A tree entry: `type` is blob, tree or commit; `size` is None unless a blob."""

    path: str
    mode: str
    type: str
    sha: str
    size: int | None


@dataclass(frozen=True)
class FileChange:
    """One file of a diff. `patch` starts at its first hunk and is None for binary files."""

    path: str
    previous_path: str | None
    status: str  # added, removed, modified, renamed
    sha: str | None
    additions: int
    deletions: int
    patch: str | None


@dataclass(frozen=True)
class TreeEdit:
    """One entry of a new tree: `sha` None removes the path."""

    path: str
    mode: str
    type: str
    sha: str | None


def valid_ref(ref: str) -> bool:
    """Whether `ref` is a full name that git accepts."""
    return bool(REF.fullmatch(ref))


def commit_record(commit: Commit) -> CommitRecord:
    """A commit, read."""
    message = commit.message if isinstance(commit.message, str) else commit.message.decode("utf-8", "replace")
    return CommitRecord(
        sha=commit.hexsha,
        tree=commit.tree.hexsha,
        parents=tuple(parent.hexsha for parent in commit.parents),
        message=message.removesuffix("\n"),
        author=Signature(str(commit.author.name), str(commit.author.email), commit.authored_datetime),
        committer=Signature(
            str(commit.committer.name), str(commit.committer.email), commit.committed_datetime
        ),
    )


def tree_entry(line: str) -> Entry:
    """A line of `git ls-tree -l -z`."""
    head, path = line.split("\t", 1)
    mode, kind, sha, size = head.split()
    return Entry(path, mode, kind, sha, None if size == "-" else int(size))


def file_change(diff: git.Diff) -> FileChange:
    """One file of a diff with patches."""
    text = diff.diff if isinstance(diff.diff, str) else (diff.diff or b"").decode("utf-8", "replace")
    binary = text.startswith("Binary files")
    lines = [] if binary else text.splitlines()
    status = (
        "added"
        if diff.new_file
        else "removed"
        if diff.deleted_file
        else "renamed"
        if diff.renamed_file
        else "modified"
    )
    blob = diff.a_blob if diff.deleted_file else diff.b_blob
    return FileChange(
        path=str(diff.a_path if diff.deleted_file else diff.b_path),
        previous_path=str(diff.a_path) if diff.renamed_file else None,
        status=status,
        sha=blob.hexsha if blob else None,
        additions=sum(line.startswith("+") for line in lines),
        deletions=sum(line.startswith("-") for line in lines),
        patch=None if binary or not text else text.removesuffix("\n"),
    )
