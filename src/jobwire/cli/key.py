"""`jobwire key`: create an API key. Only its hash goes into the settings."""

import click

from jobwire.cli import options, output


@click.command()
@click.argument("name")
@options.tenant_and_scopes
@options.as_json
def command(name: str, tenant: str, scopes: tuple[str, ...]) -> None:
    """Create an API key. It is shown once; only its hash goes into the settings.

    \b
    Examples:
      jobwire key ci --scope submit --scope read
      jobwire key acme-app --tenant acme --scope submit --scope read
    """
    from jobwire.programs.keys import new_api_key

    key, hashed = new_api_key()
    if output.wants_json():
        output.json_line(
            {"key": key, "name": name, "tenant": tenant, "scopes": scopes, "hash": hashed}
        )
        return
    click.echo(key)
    output.info("\nStore it: it is not shown again. Its hash goes into jobwire.yaml:\n")
    output.info(f"gateway:\n  keys:\n    - name: {name}\n      tenant: {tenant}")
    output.info(f"      scopes: [{', '.join(scopes)}]\n      hash: {hashed}")
