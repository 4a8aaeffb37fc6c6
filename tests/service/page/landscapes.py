"""Landscapes, skies and a city, rendered with a photographic look: the images of the screenshots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Array = NDArray[np.float64]
Colour = tuple[float, float, float]
SIZES = {"wide": (960, 640), "tall": (640, 853), "square": (800, 800)}


def noise(rng: np.random.Generator, shape: tuple[int, int], scale: tuple[float, float], octaves: int = 5) -> Array:
    """Fractal noise (H, W) from 0 to 1 whose largest features have ``scale`` pixels, vertically and horizontally."""
    height, width = shape
    total, weight, result = 0.0, 1.0, np.zeros(shape)
    for octave in range(octaves):
        rows = max(2, int(height / scale[0] * 2**octave) + 2)
        columns = max(2, int(width / scale[1] * 2**octave) + 2)
        if rows > 2 * height or columns > 2 * width:
            break
        coarse = Image.fromarray(rng.random((rows, columns)).astype(np.float32))
        result += weight * np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float64)
        total, weight = total + weight, weight / 2
    result /= total
    low, high = np.percentile(result, (1, 99))
    return np.clip((result - low) / (high - low), 0, 1)


def gradient(shape: tuple[int, int], stops: list[tuple[float, Colour]]) -> Array:
    """Vertical gradient (H, W, 3) through ``stops`` of position and colour."""
    rows = np.linspace(0, 1, shape[0])
    places = [place for place, _ in stops]
    channels = [np.interp(rows, places, [colour[each] for _, colour in stops]) for each in range(3)]
    return np.repeat(np.stack(channels, -1)[:, None], shape[1], 1)


def mix(base: Array, colour: Array | Colour, amount: Array | float) -> Array:
    """Blend ``colour`` over ``base (H, W, 3)`` with an opacity (H, W)."""
    opacity = np.asarray(amount)[..., None] if np.ndim(amount) == 2 else amount
    return base * (1 - opacity) + np.asarray(colour) * opacity


def glow(shape: tuple[int, int], centre: tuple[float, float], radius: float) -> Array:
    """Light around a point, given as fractions of width and height, from 1 at the centre."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    x, y = centre[0] * shape[1], centre[1] * shape[0]
    return np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * (radius * shape[1]) ** 2))


def ridge(rng: np.random.Generator, width: int, roughness: float, scale: float) -> Array:
    """A skyline (W) from -1 to 1."""
    return 2 * noise(rng, (2, width), (2, scale), octaves=int(3 + 4 * roughness))[0] - 1


def clouds(image: Array, rng: np.random.Generator, horizon: float, colour: Colour, cover: float) -> Array:
    """Clouds above the horizon, flatter towards it."""
    height, width = image.shape[:2]
    field = noise(rng, (height, width), (height / 5, width / 2.2), octaves=7)
    field = np.clip((field - (1 - cover)) / 0.35, 0, 1) ** 1.3
    fade = np.clip((horizon * height - np.arange(height)) / (0.35 * height), 0, 1)[:, None] ** 0.7
    shade = noise(rng, (height, width), (height / 9, width / 5), octaves=5)[..., None]
    return mix(image, np.asarray(colour) * (0.82 + 0.18 * shade), field * fade * 0.9)


def hill(
    image: Array, rng: np.random.Generator, base: float, rise: float, near: Colour, far: Colour, rough: float
) -> Array:
    """A range of hills whose skyline is at ``base``, darker towards the viewer."""
    height, width = image.shape[:2]
    line = (base + rise * ridge(rng, width, rough, width / 2.5)) * height
    depth = np.arange(height)[:, None] - line[None]
    mask = np.clip(depth + 0.5, 0, 1)
    texture = noise(rng, (height, width), (26, 60), octaves=6)
    light = noise(rng, (height, width), (height / 4, width / 4), octaves=3)
    tone = np.clip(depth / (0.35 * height), 0, 1)[..., None]
    colour = (np.asarray(far) * (1 - tone) + np.asarray(near) * tone) * (0.7 + 0.35 * texture + 0.25 * light)[..., None]
    return mix(image, np.clip(colour, 0, 1), mask)


def water(image: Array, rng: np.random.Generator, horizon: float, colour: Colour, waves: float) -> Array:
    """Mirror what is above the horizon in water with waves that grow towards the viewer."""
    height, width = image.shape[:2]
    line = int(horizon * height)
    rows = np.arange(height - line)
    ripple = noise(rng, (height - line, width), (14, 130), octaves=5) - 0.5
    closer = (rows / max(1, height - line))[:, None]
    source = np.clip(line - 1 - rows[:, None] * 0.9 + ripple * waves * 260 * closer, 0, line - 1).astype(int)
    shift = np.clip(np.arange(width)[None] + ripple * waves * 60, 0, width - 1).astype(int)
    mirrored = image[source, shift]
    fine = noise(rng, (height - line, width), (5, 42), octaves=4)
    mirrored = mix(mirrored, colour, 0.35 + 0.25 * closer[:, 0][:, None] * np.ones((1, width)))
    result = image.copy()
    result[line:] = np.clip(mirrored * (0.82 + 0.36 * fine[..., None]), 0, 1)
    return result


def glitter(image: Array, rng: np.random.Generator, horizon: float, x: float, colour: Colour, strength: float) -> Array:
    """The path of light that a low sun or moon leaves on water."""
    height, width = image.shape[:2]
    line = int(horizon * height)
    rows, columns = np.mgrid[: height - line, :width]
    spread = 0.02 * width + 0.16 * rows
    path = np.exp(-(((columns - x * width) / spread) ** 2))
    sparkle = noise(rng, (height - line, width), (4, 34), octaves=4) ** 2
    result = image.copy()
    result[line:] = mix(image[line:], colour, np.clip(path * sparkle * strength, 0, 1))
    return result


def finish(image: Array, rng: np.random.Generator, grain: float = 0.007, blur: float = 0.6) -> Image.Image:
    """What a camera adds: a soft lens, darker corners, a tone curve and grain."""
    height, width = image.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    image = image * (1 - 0.22 * np.clip((rows**2 + columns**2) / 2, 0, 1) ** 1.2)[..., None]
    bright = np.clip(image - 0.72, 0, 1)
    halo = to_image(bright * 2).filter(ImageFilter.GaussianBlur(width / 45))
    image = np.clip(image + 0.4 * np.asarray(halo, np.float64) / 255, 0, 1)
    image = image * image * (3 - 2 * image) * 0.45 + image * 0.55
    soft = to_image(image).filter(ImageFilter.GaussianBlur(blur))
    noisy = (
        np.asarray(soft, np.float64) / 255
        + rng.normal(0, grain, (height, width, 1))
        + rng.normal(0, grain / 3, image.shape)
    )
    return to_image(noisy)


def to_image(image: Array) -> Image.Image:
    return Image.fromarray((np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8))


SUNSETS: list[tuple[Colour, Colour, Colour, Colour, Colour]] = [
    ((0.2, 0.2, 0.42), (0.5, 0.32, 0.42), (0.9, 0.46, 0.3), (1.0, 0.72, 0.4), (0.62, 0.3, 0.34)),
    ((0.3, 0.5, 0.7), (0.66, 0.68, 0.66), (0.98, 0.8, 0.5), (1.0, 0.86, 0.56), (0.95, 0.72, 0.5)),
    ((0.16, 0.12, 0.3), (0.46, 0.24, 0.44), (0.84, 0.4, 0.48), (0.98, 0.62, 0.5), (0.5, 0.26, 0.42)),
]
"""Colours of a sky from the top to the horizon, and of its clouds."""


def sunset_sea(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A low sun over the sea."""
    horizon, x = rng.uniform(0.5, 0.66), rng.uniform(0.22, 0.78)
    sky = SUNSETS[rng.integers(len(SUNSETS))]
    image = gradient(
        shape, [(0, sky[0]), (0.55 * horizon, sky[1]), (0.85 * horizon, sky[2]), (horizon, sky[3]), (1, sky[3])]
    )
    sun = horizon - rng.uniform(0.02, 0.12)
    image = mix(image, (1.0, 0.8, 0.45), 0.75 * glow(shape, (x, sun), rng.uniform(0.12, 0.22)))
    image = clouds(image, rng, horizon, sky[4], rng.uniform(0.3, 0.6))
    image = mix(image, (1.0, 0.96, 0.8), np.clip(1.6 * glow(shape, (x, sun), rng.uniform(0.02, 0.03)) ** 3, 0, 1))
    if rng.random() < 0.6:
        image = hill(image, rng, horizon - 0.005, 0.03, (0.1, 0.08, 0.12), (0.28, 0.17, 0.22), 0.5)
    image = water(image, rng, horizon, (0.2, 0.14, 0.22), 0.5)
    return glitter(image, rng, horizon, x, (1.0, 0.82, 0.5), 2.4)


def day_sea(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Blue water, white clouds and a beach."""
    horizon = rng.uniform(0.4, 0.5)
    image = gradient(shape, [(0, (0.2, 0.44, 0.78)), (horizon, (0.72, 0.86, 0.95)), (1, (0.7, 0.8, 0.9))])
    image = clouds(image, rng, horizon, (1.0, 1.0, 1.0), rng.uniform(0.4, 0.6))
    image = water(image, rng, horizon, (0.05, 0.36, 0.5), 0.35)
    height, width = shape
    rows = np.arange(height)[:, None] / height
    beach = 0.8 + 0.05 * ridge(rng, width, 0.2, width / 1.5)[None] + 0.06 * np.linspace(-1, 1, width)[None]
    sand_texture = noise(rng, shape, (8, 14), octaves=4) * 0.12 + noise(rng, shape, (120, 200), octaves=3) * 0.14
    sand = np.asarray((0.86, 0.76, 0.6)) * (0.78 + sand_texture)[..., None]
    shallow = np.clip((rows - beach + 0.16) / 0.16, 0, 1)
    image = mix(image, (0.36, 0.72, 0.72), 0.55 * shallow)
    foam = np.exp(-(((rows - beach) / 0.012) ** 2)) * (0.45 + 0.55 * noise(rng, shape, (10, 40), octaves=5))
    wet = np.clip((rows - beach) / 0.004, 0, 1)
    image = mix(image, sand * np.clip(0.72 + (rows - beach) * 3.2, 0.72, 1)[..., None], wet)
    return mix(image, (0.97, 0.98, 0.98), np.clip(foam * 1.3, 0, 1))


def misty_hills(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Ranges of hills that fade into the mist."""
    dawn = rng.uniform(0, 1)
    light: Colour = (0.96, 0.84 - 0.1 * dawn, 0.72 - 0.14 * dawn)
    image = gradient(shape, [(0, (0.5, 0.62, 0.76)), (0.5, light), (1, light)])
    image = mix(image, (1.0, 0.95, 0.82), 0.6 * glow(shape, (rng.uniform(0.2, 0.8), 0.33), 0.2))
    image = clouds(image, rng, 0.42, (1.0, 0.93, 0.88), 0.4)
    for step in range(6):
        depth = step / 5
        far = np.asarray(light) * (1 - depth) * 0.86 + np.asarray((0.09, 0.17, 0.15)) * depth
        near = far * 0.75 + np.asarray((0.05, 0.08, 0.07)) * depth
        image = hill(image, rng, 0.38 + 0.1 * step, 0.05 + 0.02 * step, tuple(near), tuple(far), 0.35 + 0.5 * depth)
        mist = np.clip((np.arange(shape[0]) / shape[0] - 0.42 - 0.1 * step) / 0.12, 0, 1)[:, None] * np.ones(
            (1, shape[1])
        )
        image = mix(image, light, 0.5 * mist * (1 - depth))
    return image


def snow_mountains(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Peaks with snow above a dark valley, sometimes with a lake."""
    height, width = shape
    image = gradient(shape, [(0, (0.18, 0.36, 0.66)), (0.55, (0.74, 0.84, 0.93)), (1, (0.8, 0.86, 0.92))])
    image = clouds(image, rng, 0.5, (1.0, 1.0, 1.0), 0.38)
    line = 0.4 + 0.17 * ridge(rng, width, 1.0, width / 2.2)
    rows = np.arange(height)[:, None] / height
    surface = noise(rng, shape, (70, 46), octaves=7)
    slope = np.gradient(noise(rng, shape, (110, 90), octaves=6), axis=1)
    lit = np.clip(0.5 + slope * 55, 0, 1)
    snow = np.clip((0.2 - (rows - line) + 0.5 * (surface - 0.5)) / 0.1, 0, 1)
    rock = np.asarray((0.3, 0.3, 0.33)) * (0.45 + 0.7 * surface)[..., None]
    white = mix(np.ones((*shape, 3)) * np.asarray((0.62, 0.7, 0.84)), (1.0, 0.99, 0.96), lit)
    image = mix(image, mix(rock * (0.6 + 0.6 * lit)[..., None], white, snow), np.clip((rows - line) * height, 0, 1))
    image = mix(image, (0.72, 0.8, 0.9), 0.3 * np.clip((rows - line) / 0.4, 0, 1) * (rows > line))
    image = hill(image, rng, 0.68, 0.04, (0.05, 0.11, 0.08), (0.16, 0.26, 0.24), 1.0)
    if rng.random() < 0.7:
        return water(image, rng, 0.74, (0.1, 0.22, 0.28), 0.18)
    return hill(image, rng, 0.8, 0.03, (0.2, 0.32, 0.1), (0.26, 0.38, 0.14), 0.8)


def desert(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Dunes with a lit and a shaded side."""
    height, width = shape
    image = gradient(shape, [(0, (0.3, 0.52, 0.8)), (0.5, (0.92, 0.86, 0.78)), (1, (0.9, 0.8, 0.7))])
    rows, _columns = np.mgrid[:height, :width] / np.asarray((height, width))[:, None, None]
    for step in range(5):
        crest = (
            0.42
            + 0.12 * step
            + (0.05 + 0.025 * step) * ridge(rng, width, 0.05, width / (1.1 + 0.3 * rng.random()))[None]
        )
        depth = rows - crest
        ripples = np.sin((rows * (150 - 18 * step) + 9 * noise(rng, shape, (160, 200), octaves=3)) * 6) * 0.02
        edge = rng.uniform(0.1, 0.25) * (1 + ridge(rng, width, 0.1, width / 2)[None])
        shade = np.clip((depth - 0.1 * edge) / 0.02, 0, 1) * np.clip(1 - (depth - edge) / 0.1, 0, 1)
        lit = np.asarray((0.93, 0.66, 0.38)) * (0.86 + 0.06 * step / 4 + ripples)[..., None]
        dark = np.asarray((0.5, 0.28, 0.18)) * (0.9 + ripples)[..., None]
        haze = 0.35 * (1 - step / 4)
        colour = mix(mix(lit, dark, 0.85 * shade), (0.93, 0.84, 0.74), haze)
        image = mix(image, colour, np.clip(depth * height, 0, 1))
    return image


def night_sky(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Stars and the Milky Way over a dark ridge."""
    height, width = shape
    image = gradient(
        shape, [(0, (0.02, 0.04, 0.1)), (0.6, (0.07, 0.1, 0.2)), (0.85, (0.24, 0.2, 0.26)), (1, (0.2, 0.16, 0.2))]
    )
    rows, columns = np.mgrid[:height, :width] / np.asarray((height, width))[:, None, None]
    tilt, place = rng.uniform(0.5, 1.1), rng.uniform(0.3, 0.6)
    away = columns - place - (rows - 0.4) * tilt
    band = np.exp(-((away / 0.15) ** 2)) * (0.3 + 0.9 * noise(rng, shape, (90, 90), octaves=7))
    dust = np.exp(-((away / 0.05) ** 2)) * noise(rng, shape, (60, 60), octaves=6) ** 1.5
    image = (
        image + band[..., None] * np.asarray((0.24, 0.25, 0.34)) - 0.9 * dust[..., None] * np.asarray((0.2, 0.2, 0.22))
    )
    density = rng.random(shape)
    stars = np.where(density > 0.9985 - 0.0035 * band, rng.random(shape) ** 4, 0)
    light = to_image(np.repeat(stars[..., None], 3, 2)).filter(ImageFilter.GaussianBlur(0.8))
    image = np.clip(image, 0, 1) + 5 * np.asarray(light, np.float64) / 255
    image = hill(image, rng, 0.84, 0.05, (0.004, 0.006, 0.01), (0.01, 0.014, 0.02), 1.0)
    return np.clip(image, 0, 1)


def moon_sea(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A full moon over calm water."""
    horizon, x = 0.6, rng.uniform(0.3, 0.7)
    image = gradient(shape, [(0, (0.02, 0.05, 0.13)), (horizon, (0.16, 0.24, 0.38)), (1, (0.1, 0.14, 0.2))])
    image = mix(image, (0.7, 0.78, 0.9), 0.5 * glow(shape, (x, 0.26), 0.13))
    image = clouds(image, rng, horizon, (0.3, 0.36, 0.48), 0.42)
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    away = np.hypot(columns - x * shape[1], rows - 0.26 * shape[0])
    disc = np.clip(0.045 * shape[1] - away, 0, 1)
    image = mix(
        image, np.asarray((0.98, 0.96, 0.9)) * (0.8 + 0.2 * noise(rng, shape, (24, 24), octaves=3))[..., None], disc
    )
    image = hill(image, rng, horizon - 0.015, 0.02, (0.02, 0.03, 0.05), (0.05, 0.07, 0.12), 0.6)
    image = water(image, rng, horizon, (0.03, 0.06, 0.12), 0.4)
    return glitter(image, rng, horizon, x, (0.85, 0.9, 1.0), 2.0)


def city_night(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A skyline with lit windows, mirrored in a river."""
    height, width = shape
    horizon = 0.68
    image = gradient(
        shape, [(0, (0.03, 0.05, 0.14)), (0.4, (0.3, 0.22, 0.44)), (horizon, (0.95, 0.55, 0.42)), (1, (0.2, 0.14, 0.2))]
    )
    image = clouds(image, rng, horizon, (0.3, 0.2, 0.34), 0.45)
    for layer in range(3):
        x = -20.0
        while x < width:
            wide = rng.uniform(0.03, 0.085) * width
            tall = (
                (rng.uniform(0.1, 0.3) if rng.random() < 0.8 else rng.uniform(0.3, 0.45)) * height * (1 - 0.2 * layer)
            )
            left, right = int(max(0, x)), int(min(width, x + wide))
            top, bottom = int(horizon * height - tall), int(horizon * height)
            if right > left:
                tone = np.asarray((0.3, 0.22, 0.36)) * (1 - 0.36 * layer)
                image[top:bottom, left:right] = tone * np.linspace(0.75, 1.25, bottom - top)[:, None, None]
                step = 9 if layer else 7
                for row in range(top + 5, bottom - 4, step):
                    for column in range(left + 4, right - 4, step):
                        if rng.random() < 0.45:
                            warm = np.asarray((1.0, 0.78 + 0.16 * rng.random(), 0.42 + 0.4 * rng.random()))
                            image[row : row + 5, column : column + 4] = warm * rng.uniform(0.6, 1.0)
            x += wide * rng.uniform(0.85, 1.5)
    image = np.asarray(to_image(image).filter(ImageFilter.GaussianBlur(0.9)), np.float64) / 255
    return water(image, rng, horizon, (0.06, 0.05, 0.1), 0.35)


def city_bokeh(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Street lights out of focus."""
    height, width = shape
    image = gradient(shape, [(0, (0.03, 0.03, 0.07)), (0.6, (0.12, 0.08, 0.12)), (1, (0.03, 0.03, 0.05))])
    colours = [(1.0, 0.7, 0.3), (1.0, 0.86, 0.6), (1.0, 0.35, 0.25), (0.4, 0.7, 1.0), (0.5, 0.95, 0.6)]
    for _ in range(110):
        radius = rng.uniform(0.008, 0.045) * width
        x, y = rng.uniform(0, width), rng.normal(0.55, 0.16) * height
        low, high = max(0, int(y - radius - 2)), min(height, int(y + radius + 3))
        left, right = max(0, int(x - radius - 2)), min(width, int(x + radius + 3))
        if low >= high or left >= right:
            continue
        rows, columns = np.mgrid[low:high, left:right]
        away = np.hypot(columns - x, rows - y)
        disc = np.clip(radius - away, 0, 1) * (0.55 + 0.45 * np.clip(away / radius, 0, 1) ** 6)
        image[low:high, left:right] += (disc * rng.uniform(0.15, 0.6))[..., None] * np.asarray(colours[rng.integers(5)])
    return np.clip(image, 0, 1)


def meadow(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Green hills below a summer sky."""
    image = gradient(shape, [(0, (0.16, 0.42, 0.8)), (0.55, (0.76, 0.88, 0.96)), (1, (0.8, 0.88, 0.9))])
    image = clouds(image, rng, 0.55, (1.0, 1.0, 1.0), 0.55)
    image = hill(image, rng, 0.5, 0.04, (0.3, 0.44, 0.42), (0.5, 0.62, 0.7), 0.6)
    image = hill(image, rng, 0.58, 0.05, (0.26, 0.42, 0.2), (0.42, 0.54, 0.36), 0.5)
    image = hill(image, rng, 0.68, 0.05, (0.3, 0.5, 0.12), (0.42, 0.6, 0.22), 0.25)
    height, _width = shape
    rows = np.arange(height)[:, None] / height
    blades = noise(rng, shape, (34, 3.2), octaves=4) * np.clip((rows - 0.7) / 0.3, 0, 1)
    image = mix(image, (0.12, 0.26, 0.04), 0.55 * blades)
    return mix(
        image,
        (0.75, 0.85, 0.35),
        0.3 * noise(rng, shape, (20, 2.6), octaves=4) ** 3 * np.clip((rows - 0.75) / 0.25, 0, 1),
    )


def aurora(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Northern lights above a lake."""
    height, width = shape
    horizon = 0.66
    image = gradient(shape, [(0, (0.01, 0.03, 0.08)), (horizon, (0.05, 0.13, 0.2)), (1, (0.03, 0.06, 0.1))])
    stars = np.where(rng.random(shape) > 0.9985, rng.random(shape), 0)
    image = np.clip(image + stars[..., None], 0, 1)
    rows = np.arange(height)[:, None] / height
    for _ in range(3):
        foot = 0.34 + 0.14 * ridge(rng, width, 0.1, width / 1.3)[None] + rng.uniform(-0.08, 0.06)
        rays = 0.35 + 0.65 * noise(rng, (2, width), (2, 26), octaves=4)[:1]
        above = foot - rows
        curtain = np.where(above > 0, np.exp(-above / 0.15), np.exp(above / 0.012)) * rays
        image = image + 0.55 * curtain[..., None] * np.asarray((0.12, 0.85, 0.45))
        image = image + 0.3 * (np.exp(-(((above - 0.22) / 0.1) ** 2)) * rays)[..., None] * np.asarray((0.5, 0.1, 0.6))
    image = hill(np.clip(image, 0, 1), rng, horizon - 0.04, 0.04, (0.004, 0.012, 0.016), (0.01, 0.03, 0.04), 1.0)
    return water(image, rng, horizon, (0.01, 0.04, 0.06), 0.25)


Scene = Callable[[np.random.Generator, tuple[int, int]], Array]
SCENES: dict[str, tuple[Scene, list[tuple[str, int]]]] = {
    "2022/coast": (sunset_sea, [("wide", 55), ("wide", 51), ("tall", 57), ("wide", 56)]),
    "2022/beach": (day_sea, [("wide", 2), ("wide", 5), ("tall", 9)]),
    "2022/hills": (misty_hills, [("wide", 4), ("wide", 6), ("tall", 7)]),
    "2023/alps": (snow_mountains, [("wide", 1), ("wide", 13), ("tall", 16)]),
    "2023/desert": (desert, [("wide", 2), ("wide", 11)]),
    "2023/night": (night_sky, [("tall", 3), ("wide", 9)]),
    "2023/moon": (moon_sea, [("wide", 4), ("wide", 6)]),
    "2024/city": (city_night, [("wide", 5), ("wide", 14)]),
    "2024/lights": (city_bokeh, [("wide", 1)]),
    "2024/summer": (meadow, [("wide", 3), ("wide", 10)]),
    "2024/north": (aurora, [("wide", 2)]),
}
"""Folder: scene, and size and seed of each of its images."""


def render_scene(scene: Scene, size: str, seed: int) -> Image.Image:
    """Render one image."""
    rng = np.random.default_rng(seed)
    width, height = SIZES[size]
    return finish(scene(rng, (height, width)), rng)
