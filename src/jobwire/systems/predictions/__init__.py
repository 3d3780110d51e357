"""Predictions: the photo bot whose database is a bucket.

contract.py   keys, states, error codes, content types (P-1, P-3, P-5, P-6)
ids.py        the task id of a message, and what is derived from it
intent.py     the object that decides, its merge rules and its next step; pure
task.py       `tasks/{prediction_id}.json`, ours and other programs'; pure
records.py    both of them and the open marker in the bucket, by conditional writes
build.py      the flow from its settings, a bucket and a chat
flow_deps.py  what the steps of the flow share
flow.py       the one driver that submit, webhook and reconcile call
steps.py      what each step does up to the outcome;  settle.py  stores and publishes it
deliver.py    how a result gets into the chat
chat.py       what the chat side must offer;  texts.py  what the user reads
providers/    replicate and cog behind one small protocol
telegram/     Telegram as the chat: updates, albums, commands, polling
service.py    reconcile again and again, polling; what a process does besides requests
listing.py    tasks for display: one, or a page;  newest_tasks.py  the newest ones
overview.py   all tasks for the overview;  counts.py  what happened, for metrics
functions.py  the same as cloud functions;  http/  the same as routes of the gateway
webhook.py    a provider's webhook: headers and raw body to an answer;  signature.py  its check
reconcile.py  finishes whatever was left half done
fetch.py      downloads an output from checked addresses only;  http_client.py  bounded HTTP
limits.py     tasks in flight per chat, photos per hour per user
"""
