"""`jobwire gateway`: only the HTTP gateway, with servers that run elsewhere."""

import socket
from pathlib import Path

import click

from jobwire.cli import options, output
from jobwire.cli.exits import start_failure


@click.command()
@options.port
@options.host
@options.valkey
@options.only
@click.option("--listen-fd", type=int, hidden=True, help="An open socket, from `up`.")
@options.ready_fd
@click.option("--parts-file", type=click.Path(path_type=Path), hidden=True)
def command(listen_fd: int | None, ready_fd: int | None, parts_file: Path | None) -> None:
    """Run only the HTTP gateway; it needs the running servers of its systems.

    \b
    Examples:
      jobwire gateway --valkey valkey://localhost:6379
      jobwire gateway --host 0.0.0.0 --port 80     (needs API keys)
    """
    from jobwire.local.program import ReadyPipe

    with ReadyPipe.of(ready_fd, explain=start_failure) as ready:
        from jobwire import log
        from jobwire.local.listen import listen, url_of
        from jobwire.systems.system import chosen

        loaded = options.settings()
        settings = loaded.settings
        log.setup("gateway", settings.logging)
        systems = chosen(loaded, has_bucket=bool(settings.objects.endpoint))
        if listen_fd is None:
            listening = listen(settings.gateway.host, settings.gateway.port)
        else:
            listening = socket.socket(fileno=listen_fd)

        # Heavy imports, after the checks of settings and port.
        import uvloop

        from jobwire.programs.gateway import serve_gateway

        def on_ready() -> None:
            ready.ready()
            if listen_fd is None:
                output.info(f"gateway on {url_of(listening)}")

        uvloop.run(
            serve_gateway(
                settings,
                systems,
                listening,
                on_ready=on_ready,
                parts_file=parts_file,
                loaded=loaded,
            )
        )
