"""Where does a Job become an Outcome?"""
