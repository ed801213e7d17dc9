"""GraphQL: reactions of many comments in one request, minimizing, and GitHub's errors."""

import httpx
import pytest
from githubkit.exception import GraphQLFailed

from tests.contract.localhub.conftest import OWNER, REPO, World

REACTIONS = """
query($ids: [ID!]!) { nodes(ids: $ids) { ... on IssueComment { id databaseId
  reactions(first: 100) { totalCount nodes { content createdAt user { login databaseId } } } } } }
"""


def comments(world: World, count: int) -> list[tuple[int, str]]:
    maintainer = world.as_maintainer()
    issue = maintainer.rest.issues.create(OWNER, REPO, title="t").parsed_data
    made = [
        maintainer.rest.issues.create_comment(OWNER, REPO, issue.number, body=str(number)).parsed_data
        for number in range(count)
    ]
    return [(item.id, item.node_id) for item in made]


def test_reactions_of_many_comments_in_one_request(shared: World) -> None:
    made = comments(shared, 3)
    maintainer, bot = shared.as_maintainer(), shared.as_bot()
    maintainer.rest.reactions.create_for_issue_comment(OWNER, REPO, made[1][0], content="+1")
    bot.rest.reactions.create_for_issue_comment(OWNER, REPO, made[1][0], content="eyes")
    nodes = bot.graphql(REACTIONS, {"ids": [node for _, node in made]})["nodes"]
    assert [node["reactions"]["totalCount"] for node in nodes] == [0, 2, 0]
    assert nodes[1]["databaseId"] == made[1][0]
    assert [
        (item["content"], (item["user"] or {}).get("login")) for item in nodes[1]["reactions"]["nodes"]
    ] == [
        ("THUMBS_UP", "maintainer"),
        ("EYES", None),
    ], "a bot is no User"


def test_unknown_ids_are_errors_beside_the_data(shared: World) -> None:
    (_, known), *_ = comments(shared, 1)
    reply = httpx.post(
        f"{shared.served.url}/api/graphql",
        json={"query": REACTIONS, "variables": {"ids": [known, "IC_kwDOAAAAAAAAAAE", "nonsense"]}},
        headers={"Authorization": f"bearer {shared.maintainer}"},
    ).json()
    assert [node is None for node in reply["data"]["nodes"]] == [False, True, True]
    assert [(error["type"], error["path"]) for error in reply["errors"]] == [
        ("NOT_FOUND", ["nodes", 1]),
        ("NOT_FOUND", ["nodes", 2]),
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "{ nodes(ids: [" + ",".join(['"x"'] * 101) + "]) { id } }",
            "You may not provide more than 100 node ids",
        ),
        ("{ viewer { nope } }", "Cannot query field 'nope'"),
        ("{ viewer ", "Syntax Error"),
        (
            '{ repository(owner: "a", name: "b") { id } }',
            "Could not resolve to a Repository with the name 'a/b'.",
        ),
    ],
)
def test_errors_are_a_200(shared: World, query: str, message: str) -> None:
    maintainer = shared.as_maintainer()
    with pytest.raises(GraphQLFailed) as caught:
        maintainer.graphql(query)
    assert message in str(caught.value)


def test_anonymous_callers_are_refused(shared: World) -> None:
    reply = httpx.post(f"{shared.served.url}/graphql", json={"query": "{ viewer { login } }"})
    assert reply.status_code == 401


def test_comment_is_minimized_by_the_bot_but_not_by_a_reading_token(shared: World) -> None:
    (number, node), *_ = comments(shared, 1)
    mutation = "mutation($i: ID!) { minimizeComment(input: {subjectId: $i, classifier: OUTDATED}) { minimizedComment { isMinimized minimizedReason } } }"
    reader = shared.as_bot(permissions={"issues": "read"})
    with pytest.raises(GraphQLFailed, match="Resource not accessible by integration"):
        reader.graphql(mutation, {"i": node})
    bot = shared.as_bot()
    done = bot.graphql(mutation, {"i": node})
    assert done["minimizeComment"]["minimizedComment"] == {"isMinimized": True, "minimizedReason": "outdated"}
    assert number


def test_reaction_by_mutation(shared: World) -> None:
    (number, node), *_ = comments(shared, 1)
    maintainer = shared.as_maintainer()
    for verb in ("add", "remove"):
        maintainer.graphql(
            f"mutation($i: ID!) {{ {verb}Reaction(input: {{subjectId: $i, content: HEART}}) {{ reaction {{ content }} }} }}",
            {"i": node},
        )
        found = maintainer.rest.reactions.list_for_issue_comment(OWNER, REPO, number).parsed_data
        assert [item.content for item in found] == (["heart"] if verb == "add" else [])
