"""`jobwire signal`: send a signal to a job."""

import click
import msgspec

from jobwire.cli import completion, options, output, payload, sanitize
from jobwire.cli.program import with_client

_OUTCOMES = {"recorded": "recorded", "same": "recorded before, with the same value"}


@click.command()
@click.argument("job_id", metavar="ID", shell_complete=completion.job_id)
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[VALUE]", required=False)
@options.common
def command(job_id: str, name: str, value: str | None) -> None:
    """Send a signal to a job that waits for it, or will.

    VALUE is JSON, `@file` or `-`; any other text is sent as a string. Without it the value is null.

    \b
    Examples:
      jobwire signal 3f2a8b1c approval '{"by": "ann"}'
      jobwire signal 3f2a8b1c go
    """
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient, SignalAnswer

    parsed: object = None
    if value is not None:
        text = payload.read(value)
        try:
            parsed = msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeEncodeError):
            parsed = text

    async def send(client: AsyncClient) -> SignalAnswer:
        return await client.signal(await resolve(client, job_id), name, parsed)

    answer = with_client(send)
    line = f"{sanitize.line(answer.job_id)}  {sanitize.line(name)}: {_OUTCOMES[answer.outcome]}"
    output.result(answer, line)
