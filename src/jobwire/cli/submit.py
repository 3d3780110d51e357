"""`jobwire submit`: create a job, and follow it with `--follow`."""

import click

from jobwire.cli import completion, options, output, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import RETRY_S, with_client


@click.command()
@click.argument("task", shell_complete=completion.task)
@click.argument("payload", required=False, metavar="[JSON|TEXT|@FILE|-]")
@click.option("-f", "--follow", is_flag=True, help="Follow the job to its end.")
@options.timeout
@click.option("--idempotency-key", metavar="KEY", help="One key creates one job.")
@click.option("--queue", metavar="NAME", help="Queue of the job.  [default: the queue of the task]")
@click.option("--delay", metavar="TIME", help="Start the job after this time: 90, 5m, 1h30m.")
@click.option(
    "--at", metavar="WHEN", help="Start the job then: 18:30, 2030-01-31T18:30, or with an offset."
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Number of attempts.",
)
@click.option("--ttl", metavar="TIME", help="Keep the job for this time after its last change.")
@click.option("--deadline", metavar="TIME", help="End the job after this time, with its waits.")
@options.no_progress
@options.common
def command(
    task: str,
    payload: str | None,
    follow: bool,
    timeout: float | None,
    idempotency_key: str | None,
    queue: str | None,
    delay: str | None,
    at: str | None,
    max_attempts: int | None,
    ttl: str | None,
    deadline: str | None,
) -> int:
    """Create a job. The payload is a JSON object, or text for tasks that take one text.

    \b
    Examples:
      jobwire submit chat "hello" --follow
      jobwire submit embed @texts.json --json
      jobwire submit resize '{"file": "a.png"}' --delay 5m --max-attempts 3
    """
    from jobwire.cli.follow import follow as follow_job
    from jobwire.cli.job_options import job_options
    from jobwire.cli.payload import as_object, member, member_by_schema, no_such_task, read
    from jobwire.client import AsyncClient, Job, UnknownTask

    wanted = job_options(
        delay=delay,
        at=at,
        max_attempts=max_attempts,
        ttl=ttl,
        deadline=deadline,
        key=idempotency_key,
        queue=queue,
    )
    if payload is None and member(task):
        example = f'{output.program()} submit {task} "…"'
        raise CliExit(f"{task} needs a payload: {example}, or a JSON object", Exit.USAGE)
    text = read(payload)
    created: list[Job] = []

    async def create(client: AsyncClient) -> Exit:
        body: object = as_object(text)
        if body is None:
            name = member(task)
            if name is None:
                tasks = {each.name: each for each in await client.tasks()}
                name = member_by_schema(task, tasks)
            body = {name: text.rstrip("\n") if payload == "-" else text}
        try:
            job = await client.submit(task, body, **wanted)
        except UnknownTask:
            raise no_such_task(task, [each.name for each in await client.tasks()]) from None
        created.append(job)
        client.patience_s = RETRY_S
        if follow:
            return await follow_job(client, job, timeout_s=timeout)
        output.new_job(job, f"Follow it: {output.program()} watch {sanitize.line(job.job_id)}")
        return Exit.OK

    try:
        return with_client(create)
    except KeyboardInterrupt:
        if created:
            job_id = sanitize.line(created[0].job_id)
            output.info(f"\nThe job continues. Follow it again: {output.program()} watch {job_id}")
        raise
