"""Read frames of video files: opening, decoding at given times, windows of some seconds. Needs no torch.

file       an opened file: its video stream, start, duration and limits
reader     the frame shown at a given time, whatever the frame rate
windows    a video as windows with some upright frames each, or as evenly spaced frames
"""
