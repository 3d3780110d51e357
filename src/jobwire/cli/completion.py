"""Shell completion of tasks and job ids, asked from the running program.

Nothing is completed if no program answers, since a shell shows no errors. Imports are late: every
command with such an argument imports this module.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem


def task(
    context: "click.Context", _parameter: "click.Parameter", incomplete: str
) -> "list[CompletionItem]":
    """The known tasks."""
    from click.shell_completion import CompletionItem

    from jobwire.cli.program import completed

    tasks = completed(context, lambda client: client.tasks())
    return [
        CompletionItem(each.name, help=None if each.live else "no live worker has it")
        for each in tasks or ()
        if each.name.startswith(incomplete)
    ]


def job_id(
    context: "click.Context", _parameter: "click.Parameter", incomplete: str
) -> "list[CompletionItem]":
    """The newest jobs."""
    from click.shell_completion import CompletionItem

    from jobwire.cli.program import completed

    page = completed(context, lambda client: client.list(limit=50))
    return [
        CompletionItem(job.job_id, help=f"{job.task} {job.status}")
        for job in (page.jobs if page else ())
        if job.job_id.startswith(incomplete)
    ]
