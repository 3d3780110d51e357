"""Shell completion of tasks and job ids, asked from the running program.

Nothing is completed if no program answers, since a shell shows no errors.
"""

import click
from click.shell_completion import CompletionItem

from jobwire.cli.program import completed


def task(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The known tasks."""
    tasks = completed(context, lambda client: client.tasks())
    return [
        CompletionItem(each.name, help=None if each.live else "no live worker has it")
        for each in tasks or ()
        if each.name.startswith(incomplete)
    ]


def job_id(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The newest jobs."""
    page = completed(context, lambda client: client.list(limit=50))
    return [
        CompletionItem(job.job_id, help=f"{job.task} {job.status}")
        for job in (page.jobs if page else ())
        if job.job_id.startswith(incomplete)
    ]
