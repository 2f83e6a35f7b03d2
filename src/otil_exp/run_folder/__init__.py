"""The folder of a run, from which alone tables, reports, trackers and a resumed run read what happened."""
