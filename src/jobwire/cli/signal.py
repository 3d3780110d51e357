"""`jobwire signal`: send a signal to a job."""

import click
import msgspec

from jobwire.cli import completion, options, output, payload, sanitize
from jobwire.cli.exits import CliExit, Exit
from jobwire.cli.program import with_client
from jobwire.json_depth import bounded

_OUTCOMES = {"recorded": "recorded", "same": "recorded before, with the same value"}


@click.command()
@click.argument("job_id", metavar="ID", shell_complete=completion.job_id)
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="[VALUE]", required=False)
@options.common
def command(job_id: str, name: str, value: str | None) -> None:
    """Send a signal to a job that waits for it, or will.

    VALUE is JSON, `@file` or `-`; any other text is sent as a string, unless it begins like an
    object, an array or a string of JSON. Without it the value is null.

    \b
    Examples:
      jobwire signal 3f2a8b1c approval '{"by": "ann"}'
      jobwire signal 3f2a8b1c go
    """
    from jobwire.cli.job_ids import resolve
    from jobwire.client import AsyncClient, SignalAnswer

    parsed = None if value is None else _parsed(payload.read(value))

    async def send(client: AsyncClient) -> SignalAnswer:
        return await client.signal(await resolve(client, job_id), name, parsed)

    answer = with_client(send)
    line = f"{sanitize.line(answer.job_id)}  {sanitize.line(name)}: {_OUTCOMES[answer.outcome]}"
    output.result(answer, line)


def _parsed(text: str) -> object:
    """The value of a text. A mistake in JSON is not sent: a signal has one value, for good."""
    try:
        return bounded(msgspec.json.Decoder(msgspec.Raw).decode)(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        if text.lstrip().startswith(("{", "[", '"')):
            raise CliExit(f"the value is not valid JSON: {error}", Exit.USAGE) from None
        return text
