"""How is the disk touched without a race, and what is kept there?"""
