"""Deletion: what may go, what goes with it, and who asks for it. No I/O here.

branch → transcript → planner ⇄ tools ⇄ store ⇄ airlock → validated deletion → one session entry
"""
