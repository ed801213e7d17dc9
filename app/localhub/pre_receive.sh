#!/bin/sh
# Guards pushes as GitHub does. HUB_WORKFLOWS=allow is set by the hub for callers who may change workflow files.
while read -r old new ref; do
  case "$ref" in
    refs/heads/*|refs/tags/*) ;;
    refs/pull/*) echo "deny updating a hidden ref" >&2; exit 1 ;;
    *) echo "refusing to create funny ref '$ref' remotely" >&2; exit 1 ;;
  esac
  case "$new" in *[!0]*) ;; *) continue ;; esac
  [ "$HUB_WORKFLOWS" = allow ] && continue
  for commit in $(git rev-list "$new" --not --all); do
    file=$(git diff-tree --no-commit-id --name-only -r -m --root "$commit" -- .github/workflows | head -n 1)
    if [ -n "$file" ]; then
      echo "refusing to allow a GitHub App to create or update workflow \`$file\` without \`workflows\` permission" >&2
      exit 1
    fi
  done
done
exit 0
