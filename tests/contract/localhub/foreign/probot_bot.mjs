// A bot that Probot runs: answers a comment as a kernel bot would. Everything it does goes through Probot's own context.
import { run } from "probot";

await run((app) => {
  app.on("issue_comment.created", async (context) => {
    if (context.isBot || !context.payload.comment.body.startsWith("/probot")) return;
    const here = context.repo();
    const { data: permission } = await context.octokit.rest.repos.getCollaboratorPermissionLevel({ ...here, username: context.payload.comment.user.login });
    await context.octokit.rest.reactions.createForIssueComment({ ...here, comment_id: context.payload.comment.id, content: "eyes" });
    const config = await context.config("probot.yml", { greeting: "none" });
    const { data: branch } = await context.octokit.rest.repos.getBranch({ ...here, branch: "main" });
    await context.octokit.rest.checks.create({ ...here, name: "probot", head_sha: branch.commit.sha, conclusion: "failure" });
    await context.octokit.rest.issues.createComment(context.issue({ body: `${config.greeting} from ${context.name}: ${permission.permission}` }));
  });
  app.on("check_run.rerequested", async (context) => {
    const { id: check_run_id } = context.payload.check_run;
    await context.octokit.rest.checks.update({ ...context.repo(), check_run_id, conclusion: "success" });
  });
});
