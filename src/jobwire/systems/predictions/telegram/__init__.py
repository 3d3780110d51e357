"""Telegram as the chat of the photo bot.

api.py         one call of the Bot API, and what its answers mean
chat.py        the chat port over the Bot API: download, send, edit
updates.py     an update to what it asks for; pure
bot.py         takes updates: photos to the flow, commands to a text; the webhook
chat_lanes.py  works on updates: chats side by side, each in order
poller.py      getUpdates where no public address exists, one poller at a time
"""
