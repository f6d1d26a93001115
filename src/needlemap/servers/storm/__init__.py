"""`storm`: is a server right under use? Sessions turn, fork, rewind, cancel and come back.

Pure: the rounds (`plan`, one operation a file), their prompts (`texts`), what came of a request
(`outcome`) and the verdict (`judge`). I/O: `storming`.
"""
