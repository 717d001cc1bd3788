"""How do the two ends of a sandbox talk, and what is the first process of each?

``cell.c`` is that first process, ``protocol`` the frames, ``session`` the executor's end of one
run, ``launch`` starts a cell natively, ``seccomp`` compiles the filter that the cell installs.
"""
