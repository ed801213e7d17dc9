"""Target repositories as git sees them: mirror, checkout, commit, push. The only importer of GitPython here.

A token travels in git's environment, never in its arguments, in a URL or in a file. Commits are made with fixed
authors and dates, so the same files on the same parent are the same commit however often they are made.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from git import Git, Repo
from git.exc import GitCommandError

from app.github import redact
from app.policy import BRANCH_PREFIX, check_branch, check_paths

GIT_TIMEOUT_S = 300
STALE_LOCK_S = 20.0
# What git says of a server that doesn't answer, or answers with a fault of its own.
_AWAY = re.compile(
    r"unable to access .*(Failed to connect|Could not resolve|timed out|Empty reply|error: 5\d\d)|RPC failed|early EOF|hung up unexpectedly",
    re.DOTALL,
)
_LINK = "120000"
_FILE = "100644"


class RepositoryError(Exception):
    """git couldn't do what was asked; the message is git's own, redacted."""


class RepositoryBusyError(RepositoryError):
    """Another git works in the mirror, perhaps left by a process that died, or the server is away: soon it may go."""


class BranchMovedError(RepositoryError):
    """The branch holds commits that are not ours: someone pushed to it."""


@dataclass(frozen=True)
class Identity:
    """Who a commit is by."""

    name: str
    email: str


class TargetRepository:
    """One target repository: a bare mirror under data_dir, and checkouts of single commits beside it."""

    _locks: dict[Path, threading.Lock] = {}  # noqa: RUF012 - shared on purpose: one writer a mirror in this process
    _locks_guard = threading.Lock()

    def __init__(self, data_dir: Path, full_name: str, url: str):
        self.url, self.full_name = url, full_name
        self._mirror = data_dir.resolve() / "mirrors" / f"{full_name}.git"
        self._checkouts = data_dir.resolve() / "checkouts" / full_name
        with self._locks_guard:
            self._thread_lock = self._locks.setdefault(self._mirror, threading.Lock())

    @property
    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One writer a mirror, on this machine."""
        with self._thread_lock:
            self._mirror.parent.mkdir(parents=True, exist_ok=True)
            with self._mirror.with_suffix(".lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield

    def fetch_branch(self, token: str, branch: str) -> str:
        """Bring a branch into the mirror; returns the commit it stands at."""
        with self._lock, self._git(token) as git:
            ref = f"refs/heads/{branch}"
            git.fetch(
                "--no-tags", "--force", "--quiet", self.url, f"+{ref}:{ref}", kill_after_timeout=GIT_TIMEOUT_S
            )
            return git.rev_parse("--verify", f"{ref}^{{commit}}")

    def fetch_head(self, token: str = "") -> str:
        """Bring what HEAD stands at into the mirror; returns that commit."""
        with self._lock, self._git(token) as git:
            git.fetch(
                "--no-tags",
                "--force",
                "--quiet",
                self.url,
                "+HEAD:refs/heads/head",
                kill_after_timeout=GIT_TIMEOUT_S,
            )
            return git.rev_parse("--verify", "refs/heads/head^{commit}")

    def has(self, sha: str) -> bool:
        if not self._mirror.exists():
            return False
        try:
            with self._git() as git:
                git.cat_file("-e", f"{sha}^{{commit}}")
        except RepositoryError:
            return False
        return True

    def checkout(self, sha: str) -> Path:
        """The files of a commit in a plain directory: no .git, and links as text files. Made once, then only read."""
        target = self._checkouts / sha
        if target.is_dir():
            target.touch()  # in use: upkeep throws away what isn't
            return target
        self._checkouts.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{sha[:12]}-", dir=self._checkouts))
        try:
            with self._index() as index, self._git(index=index) as git:
                git.read_tree(sha)
                settings = ["-c", "core.symlinks=false", "-c", "core.autocrlf=false"]
                place = [f"--git-dir={self._mirror}", f"--work-tree={scratch}"]
                command = ["git", *settings, *place, "checkout-index", "--all", "--force"]
                git.execute(command, kill_after_timeout=GIT_TIMEOUT_S)
            scratch.chmod(0o755)
            try:
                scratch.rename(target)
            except OSError:
                if not target.is_dir():  # another process may have made it first; then its copy is as good
                    raise
        finally:
            if scratch.exists():
                shutil.rmtree(scratch)
        return target

    def texts(self, sha: str, paths: Iterable[str]) -> dict[str, str | None]:
        """Files of a commit of the mirror, as text; None where there is none, or what is there isn't text."""
        found: dict[str, str | None] = {}
        with self._git() as git:
            for path in paths:
                entry = "" if "\0" in path else git.ls_tree("-z", sha, "--", f":(literal){path}")
                mode, _, rest = entry.partition(" ")
                if not mode.startswith("100") or rest.partition("\t")[2].rstrip("\0") != path:
                    found[path] = None
                    continue
                data = git.execute(
                    ["git", "cat-file", "blob", rest.split(" ")[1].partition("\t")[0]],
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    kill_after_timeout=GIT_TIMEOUT_S,
                )
                found[path] = _text(data)
        return found

    def links(self, sha: str) -> list[str]:
        """Paths that are symbolic links in a commit."""
        with self._git() as git:
            listing = git.ls_tree("-r", "-z", sha)
        entries = (entry.partition("\t") for entry in listing.split("\0") if entry)
        return [path for meta, _, path in entries if meta.startswith(_LINK)]

    def commit(
        self,
        parent: str,
        files: Mapping[str, str],
        *,
        listed: list[str],
        message: str,
        author: Identity,
        at: datetime,
    ) -> str:
        """Commit files on top of a commit of the mirror; returns the sha, the same for the same arguments.

        listed: the paths that the approved profile names. Raises ForbiddenWriteError for any other, for what decides
        how the repository is built, and for what lies behind a link.
        """
        check_paths(files, listed, self.links(parent))
        date = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")
        who = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
            "GIT_COMMITTER_DATE": date,
        }
        with self._lock, self._index() as index, self._git(index=index) as git, git.custom_environment(**who):
            git.read_tree(parent)
            for path, text in sorted(files.items()):
                blob = self._write_blob(git, text)
                git.update_index("--add", "--cacheinfo", f"{self._mode(git, path)},{blob},{path}")
            tree = git.write_tree()
            if tree == git.rev_parse(f"{parent}^{{tree}}"):
                return parent
            return git.commit_tree(tree, "-p", parent, "-m", message)

    def push(self, sha: str, branch: str, token: str, prefix: str = BRANCH_PREFIX) -> None:
        """Put a commit on one of our branches. Raises BranchMovedError when it holds something else."""
        check_branch(branch, prefix)
        with self._lock, self._git(token) as git:
            listing = git.ls_remote(self.url, f"refs/heads/{branch}", kill_after_timeout=GIT_TIMEOUT_S)
            known = str(listing).partition("	")[0]
            if known == sha:
                return
            try:
                git.push("--quiet", self.url, f"{sha}:refs/heads/{branch}", kill_after_timeout=GIT_TIMEOUT_S)
            except GitCommandError as error:
                if "fetch first" in str(error) or "non-fast-forward" in str(error):
                    raise BranchMovedError(f"{branch} has commits that the bot didn't make") from None
                raise

    @staticmethod
    def _write_blob(git: Git, text: str) -> str:
        with tempfile.TemporaryFile() as stream:
            stream.write(text.encode())
            stream.seek(0)
            return git.hash_object("-w", "--stdin", istream=stream)

    @staticmethod
    def _mode(git: Git, path: str) -> str:
        known = git.ls_files("--stage", "--", path)
        return known.split(" ", 1)[0] if known else _FILE

    @contextmanager
    def _index(self) -> Iterator[Path]:
        """A private index file, so that nothing shares state through the mirror."""
        with tempfile.TemporaryDirectory(prefix="liger-bot-index-") as folder:
            yield Path(folder) / "index"

    @contextmanager
    def _git(self, token: str | None = None, index: Path | None = None) -> Iterator[Git]:
        """git in the mirror, with nobody's configuration, no prompts, no hooks, and the token in the environment."""
        if not self._mirror.exists():
            self._mirror.parent.mkdir(parents=True, exist_ok=True)
            Repo.init(self._mirror, bare=True, mkdir=True)
        settings = {"core.hooksPath": os.devnull, "gc.auto": "0", "protocol.ext.allow": "never"}
        if token is not None:
            basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
            settings[f"http.{self.url}.extraHeader"] = f"Authorization: Basic {basic}"
        environment = {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_COUNT": str(len(settings)),
            "LC_ALL": "C.UTF-8",
        }
        for number, (key, value) in enumerate(settings.items()):
            environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        git = Git(self._mirror)
        git.update_environment(**environment)
        try:
            yield git
        except GitCommandError as error:
            command = " ".join(error.command[1:2]) if isinstance(error.command, list) else error.command
            said = _one_line(str(error.stderr))
            locked = "cannot lock ref" in said or "File exists" in said
            if locked:
                self._remove_stale_locks()
            busy = locked or _AWAY.search(said)
            if "corruption on the remote side" in said:
                said = (
                    f"{self.url} lacks objects, as a partial or damaged clone does; clone it whole ({said})"
                )
            raise (RepositoryBusyError if busy else RepositoryError)(
                redact(f"git {command}: {said}")
            ) from None

    def _remove_stale_locks(self) -> None:
        """git holds these for moments; one that is old is what a killed git left, and would be in the way for ever."""
        for path in [*self._mirror.glob("*.lock"), *(self._mirror / "refs").rglob("*.lock")]:
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_LOCK_S:
                    path.unlink()


def _one_line(stderr: str) -> str:
    """What git said, without GitPython's frame, its lines joined."""
    said = stderr.strip().removeprefix("stderr:").strip().strip("'")
    return "; ".join(line.strip() for line in said.splitlines() if line.strip())[-1000:]


def _text(data: object) -> str | None:
    try:
        return data.decode() if isinstance(data, bytes) else None
    except UnicodeDecodeError:
        return None
