"""What would each hook see, what would fail, and which lines mend it?

The room of ``hook-executor check``.
"""
