// What a bot does on GitHub, by octokit as it is published. Prints one JSON object; the test compares it.
import { App, Octokit } from "octokit";

const { url, appId, installationId, privateKey, userToken, owner, repo } = JSON.parse(process.argv[2]);
const baseUrl = `${url}/api/v3`;
const app = new App({ appId, privateKey, webhooks: { secret: "s" }, Octokit: Octokit.defaults({ baseUrl }) });
const bot = await app.getInstallationOctokit(installationId);
const user = new Octokit({ auth: userToken, baseUrl });
const here = { owner, repo };
const seen = {};

seen.slug = (await app.octokit.request("GET /app")).data.slug;
seen.repositories = [];
for await (const { repository } of app.eachRepository.iterator()) seen.repositories.push(repository.full_name);

const issue = (await user.rest.issues.create({ ...here, title: "by octokit" })).data;
const comment = (await bot.rest.issues.createComment({ ...here, issue_number: issue.number, body: "profile" })).data;
await user.rest.reactions.createForIssueComment({ ...here, comment_id: comment.id, content: "+1" });
const query = "query($ids: [ID!]!) { nodes(ids: $ids) { ... on IssueComment { reactions(first: 10) { nodes { content user { login } } } } } }";
seen.reactions = (await bot.graphql(query, { ids: [comment.node_id] })).nodes[0].reactions.nodes;

const main = (await bot.rest.git.getRef({ ...here, ref: "heads/main" })).data.object.sha;
await bot.rest.git.createRef({ ...here, ref: "refs/heads/liger-bot/octokit", sha: main });
const content = Buffer.from("o = 1\n").toString("base64");
await bot.rest.repos.createOrUpdateFileContents({ ...here, path: "src/octokit.py", message: "m", content, branch: "liger-bot/octokit" });
const pull = (await bot.rest.pulls.create({ ...here, title: "t", head: "liger-bot/octokit", base: "main", draft: true })).data;
const run = (await bot.rest.checks.create({ ...here, name: "c", head_sha: pull.head.sha, status: "in_progress" })).data;
seen.check = (await bot.rest.checks.update({ ...here, check_run_id: run.id, conclusion: "success" })).data.conclusion;
seen.files = (await bot.paginate(bot.rest.pulls.listFiles, { ...here, pull_number: pull.number, per_page: 1 })).map((file) => file.filename);
seen.refused = await bot.rest.users.getAuthenticated().catch((error) => error.status);
console.log(JSON.stringify(seen));
