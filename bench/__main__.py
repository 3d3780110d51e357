"""`python -m bench [name …]`: run these benchmarks, or all. Options go to a single one."""

import importlib
import sys
from typing import Final

BENCHES: Final = {
    "client": "CPU of one EVALSHA: our connection, redis-py, valkey-py and valkey-glide",
    "calls": "CPU of a caller for one submit, get and event: our clients and plain httpx",
    "http": "CPU of one empty route, plain ASGI and FastAPI; memory of idle event streams",
    "gateway": "CPU of one POST and of one job in a batch, and of an empty route (Q-4)",
    "watchers": "ten thousand event streams: memory, delivery, server CPU (Q-5)",
    "attacks": "response time of /livez while another client attacks the gateway (O-6)",
    "faults": "CPU and memory for the first fault of payloads that a schema refuses (O-15)",
    "aof": "cost of appendfsync, and lost jobs after a crash or a power cut",
    "photo": "CPU and memory of a photo, of a minimal pyvips loop and of Pillow (Q-6, I-36)",
    "photo_recall": "faces found, pictures without people spoilt (I-37); --pictures FOLDER",
    "page": "bytes of the page, server CPU of a poll, a list of 10,000 jobs (O-4)",
    "images": "CPU of an upload and of a whole image, memory of 1,000 watchers (Q-6, I-36)",
    "instructions": "of a job and of a request, beside the committed counts; needs callgrind",
    "jobs": "CPU, rate and latency of a whole job, the minimal loop and seven peers (Q-1, Q-2)",
    "idle": "calls a second of an idle gateway and of an idle worker (L-11)",
    "recovery": "from the start of a process to the recovery of what a dead one left (J-41, B-6)",
    "retention": "server memory at 100 jobs a second that are kept for a minute (G-0, L-8)",
    "shards": "16 shards beside one: CPU of a job, and of an idle worker and gateway (G-6)",
    "routing": "start latency of jobs beside a worker with other tasks, and alone (J-53)",
    "durable": "a recorded step: round trips, CPU of client and server (D-22)",
    "queues": "a second queue beside Q-1 and Q-2 (Q-10); a worker with 100 idle queues (B-20)",
    "bullmq": "server time of each BullMQ verb: our scripts beside those of npm BullMQ",
    "bullmq_jobs": "CPU of a job on the BullMQ wire, of Node 6 and of the Python package (Q-3)",
    "bullmq_producer": "CPU of adding a job: BullQueue and the Python package (B-25)",
    "bullmq_growth": "the same with a million waiting jobs, and with a thousand queues (Q-8)",
    "bullmq_times": "delayed jobs and the rate limit of a BullMQ queue: how punctual they are",
    "llm": "the local model: first token, tokens per second, memory, delay of a cancel (J-51)",
    "predictions": "S3 operations of a task, of an idle minute and of a long reconcile pass (P-34)",
}


def main(arguments: list[str]) -> int:
    first = next((at for at, each in enumerate(arguments) if each.startswith("-")), None)
    names, options = arguments[:first], [] if first is None else arguments[first:]
    if options and len(names) != 1:
        print("options belong to one benchmark: name it first")
        return 2
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"unknown benchmark: {', '.join(unknown)}; known: {', '.join(BENCHES)}")
        return 2
    failed: list[str] = []
    for name in names or BENCHES:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        if not importlib.import_module(f"bench.{name}").run(*options):
            failed.append(name)
    if failed:
        print(f"\nratios not met: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
