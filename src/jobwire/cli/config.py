"""`jobwire config`: every setting, its value and its source; secrets are masked."""

import click

from jobwire.cli import options, output


@click.command()
@options.as_json
@click.option("--given", is_flag=True, help="Only settings that are set.")
@click.pass_context
def command(context: click.Context, as_json: bool, given: bool) -> None:
    """Show every setting, its value and its source; secrets are masked.

    \b
    Examples:
      jobwire config --given
      jobwire config --json | grep valkey
    """
    import msgspec

    from jobwire.settings import Settings, sections, show

    loaded = options.settings(context)
    rows: list[tuple[str, object, str]] = []
    for section in sections(Settings):
        holder: object = loaded.settings
        if section.path:
            holder = getattr(holder, section.path)
        for leaf in section.leaves:
            if loaded.is_set(leaf.path) or not given:
                value: object = getattr(holder, leaf.path.rpartition(".")[2])
                shown = show(value, secret=leaf.secret)
                rows.append((leaf.path, shown, loaded.origins[leaf.path]))
    if output.wants_json(as_json):
        for name, value, origin in rows:
            output.json_line({"name": name, "value": value, "origin": origin})
    else:
        texts = [
            value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for _, value, _ in rows
        ]
        shown = [(name, text, origin) for (name, _, origin), text in zip(rows, texts, strict=True)]
        if shown:
            output.table([("setting", "value", "from"), *shown])
