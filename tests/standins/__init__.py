"""Stand-ins for paid and external services: servers over real HTTP with a fault plan.

serving.py    the HTTP server that all of them share
replicate.py  Replicate's wire over a real cog server
cog.py        the real cog server, with a small model
chat.py       a chat; chat_client.py is our side of it
telegram.py   the Bot API of Telegram
"""
