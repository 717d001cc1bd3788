"""Where does what happened go?"""
