"""How do programs speak HTTP with a running executor?"""
