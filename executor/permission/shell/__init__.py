"""Which commands would a shell really run, given a text?"""
