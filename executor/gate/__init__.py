"""Is this tool call to go on, and what is the model told? (SPEC section 7)

``walk`` is the pure order; ``handlers`` and ``protocols`` make functions and hook processes answer
in one way; ``asker`` asks, ``tool_call`` makes a whole call, ``pipeline`` is the module-level verb.
"""
