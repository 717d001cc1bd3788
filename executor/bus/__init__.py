"""Who else hears of an event?"""
