"""Photos: the pipeline, the pool of workers, hostile files, the command."""
