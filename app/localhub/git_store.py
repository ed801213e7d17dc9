"""The git half of the hub: one bare repository a repository, reached through GitPython.

Every function opens the repository anew: GitPython's object readers are processes that threads must not share.
Names and shas that come from outside are checked before git sees them, so that none can be read as an option.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import git
from git.exc import GitCommandError
from git.objects import Blob

from app.localhub.git_objects import (
    NO_COMMIT,
    SHA,
    CommitRecord,
    Entry,
    FileChange,
    GitError,
    Signature,
    TreeEdit,
    commit_record,
    file_change,
    tree_entry,
    valid_ref,
)

HOOK_TEMPLATE = Path(__file__).with_name("pre_receive.sh")


class GitStore:
    """The bare repositories below `folder`, named by repository id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, repository_id: int) -> Path:
        """Where the bare repository lies."""
        return self._folder / f"{repository_id}.git"

    @contextmanager
    def _open(self, repository_id: int) -> Iterator[git.Repo]:
        # objects are read in this process: starting git for each of them, often inside a transaction, holds others up
        repo = git.Repo(self.path(repository_id), odbt=git.GitDB)
        try:
            yield repo
        finally:
            repo.close()

    def create(self, repository_id: int, default_branch: str) -> None:
        """Make the bare repository, with the hook that guards pushes. Raises GitError when it exists."""
        path = self.path(repository_id)
        if path.exists():
            raise GitError(f"{path} exists already")
        with (
            git.Repo.init(path, bare=True, initial_branch=default_branch) as repo,
            repo.config_writer() as config,
        ):
            config.set_value("http", "receivepack", "true")
            config.set_value(
                "uploadpack", "allowAnySHA1InWant", "true"
            )  # GitHub serves any sha of the repository
            config.set_value("uploadpack", "allowFilter", "true")
            config.set_value("core", "logAllRefUpdates", "false")
            config.set_value("gc", "auto", "0")
        hook = path / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        shutil.copyfile(HOOK_TEMPLATE, hook)
        hook.chmod(0o755)

    def commit_directory(
        self, repository_id: int, directory: Path, branch: str, message: str, author: Signature
    ) -> str:
        """Commit every file below `directory` as the root commit of `branch`; returns its sha.

        Files that the directory's own .gitignore names are left out only when they match no tracked file, as `git add`
        does; a `.git` folder is skipped by git itself.
        """
        with self._open(repository_id) as repo:
            index = self.path(repository_id) / f"import-{branch.replace('/', '-')}.index"
            environment = {"GIT_INDEX_FILE": str(index), **_identity(author, author)}
            try:
                tool = git.Git(directory)
                base = [
                    "git",
                    f"--git-dir={self.path(repository_id)}",
                    f"--work-tree={directory}",
                    "-c",
                    "core.bare=false",
                ]
                tool.execute(
                    [*base, "-c", "core.autocrlf=false", "add", "--all", "--force", "."], env=environment
                )
                tree = str(tool.execute([*base, "write-tree"], env=environment))
            finally:
                index.unlink(missing_ok=True)
            sha = self._commit(repo, tree, [], message=message, author=author, committer=author)
            repo.git.update_ref(f"refs/heads/{branch}", sha)
            return sha

    def empty_commit(
        self, repository_id: int, branch: str, files: Mapping[str, bytes], message: str, author: Signature
    ) -> str:
        """Root commit of `branch` holding `files` (path to content); returns its sha."""
        edits = [
            TreeEdit(path, "100644", "blob", self.write_blob(repository_id, data))
            for path, data in files.items()
        ]
        tree = self.write_tree(repository_id, edits, None)
        sha = self.write_commit(repository_id, tree, [], message, author=author, committer=author)
        self.set_ref(repository_id, f"refs/heads/{branch}", sha)
        return sha

    # refs

    def refs(self, repository_id: int) -> dict[str, str]:
        """Every ref and the sha it names."""
        with self._open(repository_id) as repo:
            listing = repo.git.for_each_ref("--format=%(refname) %(objectname)")
        return dict(line.split(" ", 1) for line in listing.splitlines())

    def ref(self, repository_id: int, ref: str) -> str | None:
        """The sha that `ref` names, or None."""
        return self.refs(repository_id).get(ref)

    def set_ref(self, repository_id: int, ref: str, sha: str, expected: str | None = None) -> None:
        """Point `ref` at `sha`; `expected` (NO_COMMIT: must not exist) makes it a compare-and-set. Raises GitError."""
        if not valid_ref(ref) or not SHA.fullmatch(sha):
            raise GitError("Reference name is not valid")
        with self._open(repository_id) as repo:
            try:
                repo.git.update_ref(ref, sha, *([expected] if expected is not None else []))
            except GitCommandError as error:
                raise GitError("Reference cannot be updated") from error

    def delete_ref(self, repository_id: int, ref: str) -> None:
        """Remove `ref`. Raises GitError."""
        with self._open(repository_id) as repo:
            try:
                repo.git.update_ref("-d", ref)
            except GitCommandError as error:
                raise GitError("Reference cannot be deleted") from error

    def resolve(self, repository_id: int, name: str) -> str | None:
        """The commit sha of a sha (whole or at least 7 digits), branch, tag or full ref; None if there is none."""
        refs = self.refs(repository_id)
        for candidate in (name, f"refs/{name}", f"refs/heads/{name}", f"refs/tags/{name}"):
            if candidate in refs:
                name = refs[candidate]
                break
        if not re.fullmatch(r"[0-9a-f]{7,40}", name):
            return None
        with self._open(repository_id) as repo:
            try:
                return str(repo.git.rev_parse("--verify", "--quiet", f"{name}^{{commit}}"))
            except GitCommandError:
                return None

    # objects

    def object_type(self, repository_id: int, sha: str) -> str | None:
        """commit, tree, blob or tag; None when there is no such object."""
        if not SHA.fullmatch(sha):
            return None
        with self._open(repository_id) as repo:
            try:
                return str(repo.git.cat_file("-t", sha))
            except GitCommandError:
                return None

    def commit(self, repository_id: int, sha: str) -> CommitRecord | None:
        """The commit of a whole sha, or None."""
        if self.object_type(repository_id, sha) != "commit":
            return None
        with self._open(repository_id) as repo:
            return commit_record(repo.commit(sha))

    def commits(
        self,
        repository_id: int,
        tip: str,
        exclude: str | None = None,
        limit: int = 250,
        path: str | None = None,
    ) -> list[CommitRecord]:
        """Commits reachable from `tip` and not from `exclude`, newest first."""
        span = tip if exclude is None or exclude == NO_COMMIT else f"{exclude}..{tip}"
        with self._open(repository_id) as repo:
            return [
                commit_record(item)
                for item in repo.iter_commits(span, max_count=limit, paths=[path] if path else [])
            ]

    def tree(self, repository_id: int, sha: str, recursive: bool) -> list[Entry] | None:
        """Entries of the tree of a tree or commit sha, or None."""
        if self.object_type(repository_id, sha) not in ("commit", "tree"):
            return None
        with self._open(repository_id) as repo:
            flags = ["-r", "-t"] if recursive else []
            listing = repo.git.ls_tree("-l", "-z", *flags, sha, strip_newline_in_stdout=False)
        return [tree_entry(line) for line in listing.split("\0") if line]

    def entry(self, repository_id: int, commit: str, path: str) -> Entry | None:
        """The entry at `path` of a commit, or None; the empty path is its root tree."""
        if not path:
            record = self.commit(repository_id, commit)
            return Entry("", "040000", "tree", record.tree, None) if record else None
        with self._open(repository_id) as repo:
            listing = repo.git.ls_tree(
                "-l", "-z", commit, "--", path.rstrip("/"), strip_newline_in_stdout=False
            )
        lines = [line for line in listing.split("\0") if line]
        return tree_entry(lines[0]) if lines else None

    def blob(self, repository_id: int, sha: str) -> bytes | None:
        """The bytes of a blob, or None."""
        if self.object_type(repository_id, sha) != "blob":
            return None
        with self._open(repository_id) as repo:
            return Blob(repo, bytes.fromhex(sha)).data_stream.read()

    def write_blob(self, repository_id: int, data: bytes) -> str:
        """Store `data`; returns its sha."""
        with self._open(repository_id) as repo:
            return str(repo.git.hash_object("-w", "--stdin", istream=_stdin(data)))

    def write_tree(self, repository_id: int, edits: Sequence[TreeEdit], base_tree: str | None) -> str:
        """A tree made of `base_tree` with `edits` applied; returns its sha. Raises GitError."""
        with self._open(repository_id) as repo:
            index = self.path(repository_id) / f"tree-{id(edits)}.index"
            environment = {"GIT_INDEX_FILE": str(index)}
            lines = [
                f"0 {NO_COMMIT}\t{edit.path}\0"
                if edit.sha is None
                else f"{edit.mode} {edit.type} {edit.sha}\t{edit.path}\0"
                for edit in edits
            ]
            try:
                if base_tree is None:
                    repo.git.read_tree("--empty", env=environment)
                else:
                    repo.git.read_tree(base_tree, env=environment)
                repo.git.update_index(
                    "--add", "-z", "--index-info", istream=_stdin("".join(lines).encode()), env=environment
                )
                return str(repo.git.write_tree(env=environment))
            except GitCommandError as error:
                raise GitError(f"tree can't be made: {str(error.stderr).strip()}") from error
            finally:
                index.unlink(missing_ok=True)

    def write_commit(
        self,
        repository_id: int,
        tree: str,
        parents: Sequence[str],
        message: str,
        *,
        author: Signature,
        committer: Signature,
    ) -> str:
        """Store a commit; returns its sha. Raises GitError when the tree or a parent is missing."""
        if self.object_type(repository_id, tree) != "tree":
            raise GitError("Tree SHA does not exist")
        if any(self.object_type(repository_id, parent) != "commit" for parent in parents):
            raise GitError("Parent SHA does not exist or is not a commit object")
        with self._open(repository_id) as repo:
            return self._commit(repo, tree, parents, message=message, author=author, committer=committer)

    @staticmethod
    def _commit(
        repo: git.Repo,
        tree: str,
        parents: Sequence[str],
        *,
        message: str,
        author: Signature,
        committer: Signature,
    ) -> str:
        flags = [part for parent in parents for part in ("-p", parent)]
        return str(
            repo.git.commit_tree(
                *flags, tree, istream=_stdin(message.encode()), env=_identity(author, committer)
            )
        )

    # comparison

    def merge_base(self, repository_id: int, one: str, other: str) -> str | None:
        """The best common ancestor, or None."""
        with self._open(repository_id) as repo:
            try:
                return str(repo.git.merge_base(one, other))
            except GitCommandError:
                return None

    def count(self, repository_id: int, exclude: str, tip: str) -> int:
        """How many commits `tip` has that `exclude` lacks."""
        with self._open(repository_id) as repo:
            return int(repo.git.rev_list("--count", f"{exclude}..{tip}"))

    def changes(self, repository_id: int, base: str, head: str) -> list[FileChange]:
        """The files that differ between two commits, renames found, sorted by path."""
        with self._open(repository_id) as repo:
            found = repo.commit(base).diff(repo.commit(head), create_patch=True, find_renames="50%")
            return sorted((file_change(item) for item in found), key=lambda change: change.path)

    def diff_text(self, repository_id: int, base: str, head: str) -> str:
        """The whole unified diff."""
        with self._open(repository_id) as repo:
            return repo.git.diff("-M", base, head, strip_newline_in_stdout=False)

    def merge_tree(self, repository_id: int, base: str, head: str) -> str | None:
        """The tree of merging `head` into `base`, or None when they conflict."""
        with self._open(repository_id) as repo:
            try:
                return str(repo.git.merge_tree("--write-tree", base, head)).splitlines()[0]
            except GitCommandError:
                return None


def _stdin(data: bytes) -> Any:
    # GitPython hands `istream` to subprocess, which needs a file descriptor: a pipe would block on large data.
    stream = tempfile.TemporaryFile()  # noqa: SIM115 - closed when collected, after the command has read it
    stream.write(data)
    stream.seek(0)
    return stream


def _identity(author: Signature, committer: Signature) -> dict[str, str]:
    return {
        "GIT_AUTHOR_NAME": author.name,
        "GIT_AUTHOR_EMAIL": author.email,
        "GIT_AUTHOR_DATE": author.moment.isoformat(),
        "GIT_COMMITTER_NAME": committer.name,
        "GIT_COMMITTER_EMAIL": committer.email,
        "GIT_COMMITTER_DATE": committer.moment.isoformat(),
    }
