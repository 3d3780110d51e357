"""The App as the worker wraps it."""

from jobwire.job.messages import MissingRequirement
from jobwire.worker import App, Context


def test_a_wrapped_app_keeps_tools_crons_and_checks() -> None:
    """Tracing wraps the app of a worker: its task `tool` must still find every tool."""
    app = App()

    @app.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @app.check
    def complete() -> list[MissingRequirement]:
        return [MissingRequirement("model", "not there", "download it")]

    @app.cron("@daily")
    def nightly(ctx: Context) -> None: ...

    wrapped = app.wrapped(lambda handler: handler)
    assert wrapped.tools == {"add": add}
    assert wrapped.crons == app.crons
    assert wrapped.missing_requirements() == complete()
    assert wrapped.handlers == app.handlers
