"""Generate scenes: small images of colored shapes with true captions, identical on every machine.

Scenes come in pairs that share every word and differ in their binding ("two red circles and three blue squares", "two
blue circles and three red squares"), so that a bag of words or colors finds the pair but not the scene. Every caption
describes its scene completely and is true of no other scene of the split.

>>> from vse.data.scenes import KeyedRandom, describe, render, sample_scene
>>> scene = sample_scene(seed=0, split="test", index=7)
>>> render(scene, size=128).size
(128, 128)
>>> len(describe(scene, KeyedRandom(0)))
5
"""

from vse.data.scenes.captions import describe
from vse.data.scenes.dataset import WrittenScenes, write_scenes
from vse.data.scenes.keyed import KeyedRandom
from vse.data.scenes.render import contact_sheet, render
from vse.data.scenes.sample import caption_scene, sample_scene
from vse.data.scenes.scene import Background, Content, Group, Part, Scene, Shape, Stroke

__all__ = [
    "Background",
    "Content",
    "Group",
    "KeyedRandom",
    "Part",
    "Scene",
    "Shape",
    "Stroke",
    "WrittenScenes",
    "caption_scene",
    "contact_sheet",
    "describe",
    "render",
    "sample_scene",
    "write_scenes",
]
