"""Submits a job and prints its progress. The gateway is found as by the CLI."""

from jobwire import Client

with Client() as jobs:
    job = jobs.submit("count", {"to": 5})
    for event in jobs.events(job.job_id):
        print(event.type, event.data)
    print(jobs.get(job.job_id).result)
