"""The photo bot without any account: a real cog model, a chat page in the browser (P-27).

cog.py    cog in an environment of its own, and its server with the demo's model
chat.py   the chat port in memory
pages.py  the chat page and its routes;  static/ has its files
run.py    all of it together
sample.py a picture to begin with
"""
