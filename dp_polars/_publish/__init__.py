"""What people read: the report of a release, and the planner in the browser.

Everything here is above a release, and reads what was released, or public things alone.
"""
