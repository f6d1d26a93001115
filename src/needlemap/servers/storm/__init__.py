"""`storm`: is a server right under use? Sessions turn, fork, rewind, cancel and come back.

Pure: the rounds (`plan`, one operation a file), their prompts (`texts`), what came of a request
(`outcome`), all that was observed (`evidence`), its counts and bets (`tally`), the verdict
(`judge`) and its lines (`wording`). I/O: `storming`, by way of `sending`, `weighing`, `replaying`.
"""
