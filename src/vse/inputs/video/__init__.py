"""From a video file to upright frames: opening, decoding at given times, windows of some seconds. Needs no torch.

clip            an opened file: its video stream, when it starts and how long it lasts
frame_reader    the frame seen at a time, whatever the frame rate
upright         a frame as it is to be seen: turned, with square pixels
frames          a clip as windows, each with some frames
limits, decoding_time   what a file from anywhere may cost
"""
