"""Images to vectors: every way to hand them in, and bad ones among good ones."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import Image
from tests.support_models import SIZE, assert_unit, build, feature_sets, grid_config, picture

from vse.errors import InputError
from vse.inputs import BadImageError
from vse.models.encode import BadImage, BadImageWarning

EXIF_ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def grid():
    return build(grid_config())


def png(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


class TestPictures:
    """Every way to hand in images."""

    def test_paths_bytes_pil_and_arrays_are_the_same(self, grid, tmp_path):
        """One image in five forms has one vector."""
        array = picture()
        path = tmp_path / "naïve – 画.png"
        path.write_bytes(png(array))
        forms = [path, str(path), png(array), Image.fromarray(array), array]
        found = grid.encode_images(forms)
        assert_unit(found, 5)
        for row in found[1:]:
            np.testing.assert_allclose(row, found[0], atol=1e-6)

    @pytest.mark.parametrize("form", ["path", "text", "bytes", "pil", "array", "grey"])
    def test_one_alone_is_a_sequence_of_one(self, grid, form, tmp_path):
        """A single image needs no list around it."""
        array = picture()
        (tmp_path / "a.png").write_bytes(png(array))
        given = {
            "path": tmp_path / "a.png",
            "text": str(tmp_path / "a.png"),
            "bytes": png(array),
            "pil": Image.fromarray(array),
            "array": array,
            "grey": array[:, :, 0],
        }[form]
        found = grid.encode_images(given)
        np.testing.assert_allclose(found, grid.encode_images([given]), atol=1e-6)
        assert_unit(found, 1)

    def test_a_stack_of_pictures_is_many(self, grid):
        """(n, H, W, 3) is n images, and a tuple is as good as a list."""
        stack = np.stack([picture(n) for n in range(3)])
        expected = grid.encode_images(list(stack))
        np.testing.assert_allclose(grid.encode_images(stack), expected, atol=1e-6)
        np.testing.assert_allclose(grid.encode_images(tuple(stack)), expected, atol=1e-6)

    @pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "CMYK", "1", "I;16", "I", "F", "YCbCr", "HSV"])
    def test_every_mode_has_a_vector(self, grid, mode):
        """Grey, transparent, printed, of 16 bits: finite and of unit norm."""
        if mode == "I;16":
            image = Image.fromarray((picture()[:, :, 0].astype(np.uint16)) * 257)
        else:
            image = Image.fromarray(picture()).convert(mode)
        assert_unit(grid.encode_images([image]), 1)

    @pytest.mark.parametrize("kind", ["JPEG", "GIF", "BMP", "TIFF", "WEBP"])
    def test_every_format_has_a_vector(self, grid, kind):
        """As a file would hold it."""
        stream = io.BytesIO()
        Image.fromarray(picture()).save(stream, kind)
        assert_unit(grid.encode_images([stream.getvalue()]), 1)

    def test_a_rotated_photograph_is_read_upright(self, grid):
        """The orientation of EXIF is applied: the stored image turned by hand has the same vector."""
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = 6
        stream = io.BytesIO()
        Image.fromarray(picture()).save(stream, "PNG", exif=exif)
        upright = np.rot90(picture(), -1)
        found = grid.encode_images([stream.getvalue(), np.ascontiguousarray(upright), picture()])
        np.testing.assert_allclose(found[0], found[1], atol=1e-6)
        assert np.abs(found[0] - found[2]).max() > 1e-4

    def test_tiny_and_long_pictures(self, grid):
        """One pixel, one row, one column."""
        found = grid.encode_images([picture(0, *size) for size in ((1, 1), (1, 300), (300, 1))])
        assert_unit(found, 3)

    def test_cells_computed_before_are_taken(self, grid):
        """Feature sets of the backbone's width stand in for images."""
        sets = feature_sets(4, 2, width=grid.feature_size)
        assert_unit(grid.encode_images(sets), 2)

    def test_pictures_and_cells_may_be_mixed(self, grid):
        """Each has the vector it has alone, whatever stands beside it."""
        cells = feature_sets(4, width=grid.feature_size)[0]
        mixed = [picture(1), cells, picture(2)]
        alone = np.concatenate([grid.encode_images([one]) for one in mixed])
        np.testing.assert_allclose(grid.encode_images(mixed), alone, atol=1e-6)


class TestBadPictures:
    """One bad image does not stop the others."""

    @pytest.fixture
    def mixed(self, tmp_path):
        broken = tmp_path / "broken.jpg"
        broken.write_bytes(png(picture())[:60])
        return [picture(1), broken, picture(2), tmp_path / "missing.png", picture(3)]

    @pytest.mark.parametrize("batch_size", [1, 2, 32])
    def test_its_row_is_nan_and_the_others_are_unchanged(self, grid, mixed, batch_size):
        """Rows stay in their order; what could not be read cannot be mistaken for a vector."""
        with pytest.warns(BadImageWarning):
            found = grid.encode_images(mixed, batch_size=batch_size)
        good = grid.encode_images([mixed[0], mixed[2], mixed[4]], batch_size=batch_size)
        np.testing.assert_allclose(found[[0, 2, 4]], good, atol=1e-6)
        assert np.isnan(found[[1, 3]]).all()

    def test_a_warning_names_them(self, grid, mixed):
        """File and reason, and the line points at the caller."""
        with pytest.warns(BadImageWarning, match=r"2 images.*broken\.jpg: .*missing\.png: no such file") as caught:
            grid.encode_images(mixed)
        assert caught[0].filename == __file__

    def test_a_long_list_is_cut(self, grid, tmp_path):
        """Three are named, the rest counted."""
        with pytest.warns(BadImageWarning, match=r"5 images.*; and 2 more"):
            grid.encode_images([tmp_path / f"{n}.png" for n in range(5)])

    def test_a_list_of_problems_replaces_the_warning(self, grid, mixed):
        """Whoever asks for the problems gets them, with index, name and reason, behind those already there."""
        before = BadImage(9, "earlier", "of another call")
        problems = [before]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            grid.encode_images(mixed, problems=problems)
        assert problems[0] is before
        assert [problem.index for problem in problems[1:]] == [1, 3]
        assert problems[1].name == str(mixed[1])
        assert problems[2] == BadImage(3, str(mixed[3]), "no such file")

    def test_raise_stops_at_the_first(self, grid, mixed):
        """As the error of the image itself."""
        with pytest.raises(BadImageError, match=r"broken\.jpg"):
            grid.encode_images(mixed, on_bad="raise")

    def test_arrays_that_are_no_pictures_are_bad_pictures(self, grid):
        """Named by their place in the list."""
        with pytest.warns(BadImageWarning):
            found = grid.encode_images([picture(), np.full((4, 4, 3), 7.5), np.zeros((2, 2, 5), np.uint8)])
        assert np.isnan(found[1:]).all()
        assert_unit(found[:1], 1)

    def test_only_unreadable_images_give_nan_rows(self, grid, tmp_path):
        """Nothing but NaN, and no crash."""
        problems = []
        found = grid.encode_images([tmp_path / "no.png", b""], problems=problems)
        assert np.isnan(found).all()
        assert found.shape == (2, SIZE)
        assert len(problems) == 2

    def test_mistyped_on_bad_policy_is_refused(self, grid, mixed):
        """A mistyped ``on_bad`` does not mean "report"."""
        with pytest.raises(InputError, match="'rise'"):
            grid.encode_images(mixed, on_bad="rise")
