"""`python -m tests.clauses`: which promises have a test, and which are still open."""

from tests.support.clauses import proved_clauses, report, written_clauses

if __name__ == "__main__":
    print("\n".join(report(written_clauses(), proved_clauses())))
