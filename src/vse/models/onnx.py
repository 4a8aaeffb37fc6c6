"""Run an exported model with ONNX Runtime, without torch; the methods are those of :class:`~vse.models.VSEModel`.

The folder that ``vse export`` writes:

    config.json         sizes, preprocessing, precision, the configuration of the exported model
    image.onnx          pixels (B, 3, H, W), or features (B, N, F) and lengths (B,) → vectors (B, D)[, contributions]
    text.onnx           tokens (B, L), lengths (B,) → vectors (B, D)
    *-MARK.onnx.data    large weights of either, memory-mapped; MARK is the fingerprint
    tokenizer.json, tokenizer_settings.json, README.md, pooling_curves.json, pooling.png
    checksums.json      SHA-256 of towers, weights and tokenizer, see :mod:`vse.models.integrity`
    confidence.json, relevance.json     coefficients of ``vse calibrate``, if it was run; not read here
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from vse._util.prefetch import available_cores
from vse._util.schema import Positive, parse_plain, read_json
from vse.errors import InputError, VSEError, first_line
from vse.models.devices import (
    PROVIDERS,
    QUIET,
    DeviceError,
    OnnxDevice,
    check_threads,
    onnx_device,
)
from vse.models.encode import EncodingMethods, VideoMethods
from vse.models.integrity import verify_files
from vse.models.protocols import NO_EVIDENCE, Capabilities, ParallelCalls, Vectors

if TYPE_CHECKING:
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer
    from vse.models.curves import PoolingCurve
    from vse.models.encode_videos import PixelVideos

Precision = Literal["fp32", "fp16", "int8", "mixed"]
"""Of both towers; ``mixed`` is fp16 for images and int8 for texts."""
IMAGE_FILE = "image.onnx"
TEXT_FILE = "text.onnx"
TOKENIZER_FILE = "tokenizer.json"
WEIGHTS_ENDING = ".onnx.data"
MARK = "vse_fingerprint"  # under which a tower carries the fingerprint of its model
FEW = 4
"""So many texts at most are a query: one thread reads them, and weights are not packed, which takes longer still."""


@dataclass(frozen=True, kw_only=True)
class OnnxConfig:
    """``config.json`` of an exported model."""

    format: Literal[1] = 1
    runtime: Literal["onnx"] = "onnx"
    vse_version: str
    fingerprint: str
    precision: Precision
    embed_size: Positive
    feature_size: Positive
    preprocessing: dict[str, Any] | None
    grid: tuple[Positive, Positive] | None
    largest_image_set: Positive
    longest_text: Positive
    vocabulary_size: Positive
    explains: bool
    agreement: dict[str, float]
    source: dict[str, Any]


class OnnxModel(EncodingMethods, VideoMethods):
    """Encode images and texts with ONNX Runtime; a tower is loaded on first use."""

    def __init__(
        self, folder: Path, config: OnnxConfig, threads: int | None = None, device: OnnxDevice | None = None
    ) -> None:
        self.folder = folder
        self.config = config
        self.threads = threads
        self._device = device or OnnxDevice()
        # DirectML allows one call of a session at a time; the other providers allow several.
        self._turn = Lock() if self._device.provider == PROVIDERS["dml"].provider else nullcontext()
        self._parallel: Any = None  # a session while several threads call
        self._parallel_sessions: dict[int, Any] = {}  # by the threads of a call

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None, threads: int | None = None) -> OnnxModel:
        """Load the export in ``folder``.

        Args:
            folder: Folder of an export.
            device: A name of :data:`vse.models.devices.ONNX_DEVICES`; the CPU by default.
            threads: Limits the threads of one call; all cores of this process by default.
        """
        folder = Path(folder)
        check_threads(threads)
        config = parse_plain(OnnxConfig, read_json(folder / "config.json"), str(folder / "config.json"))
        for name in (IMAGE_FILE, TEXT_FILE):
            if not (folder / name).is_file():
                raise InputError(f"{folder}: {name} is missing; export the model again")
        return cls(folder, config, threads, onnx_device(device, threads))

    @property
    def device(self) -> str:
        """Name of the device that it runs on, such as ``cpu`` or ``cuda``."""
        return self._device.name

    @property
    def embed_size(self) -> int:
        """Dimensions of an embedding."""
        return self.config.embed_size

    @property
    def feature_size(self) -> int:
        """Width of the features that the image tower takes or computes."""
        return self.config.feature_size

    @property
    def takes_frames(self) -> bool:
        """Whether features are those of video frames."""
        return self.config.source.get("image", {}).get("kind") == "frames"

    @property
    def capabilities(self) -> Capabilities:
        """What the export can do; one that reads images takes no features of its backbone."""
        reads_images = self.config.preprocessing is not None
        return Capabilities(
            images=reads_images,
            texts=(self.folder / TOKENIZER_FILE).is_file(),
            videos=reads_images,
            evidence=reads_images and self.config.explains,
            features=not reads_images,
        )

    @cached_property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How images are prepared; None for a model of features."""
        if self.config.preprocessing is None:
            return None
        from vse.inputs.preprocessing import ImagePreprocessing

        return ImagePreprocessing.from_json(self.config.preprocessing)

    @cached_property
    def tokenizer(self) -> TextTokenizer | None:
        """How texts become tokens; None without a vocabulary."""
        if not (self.folder / TOKENIZER_FILE).is_file():
            return None
        from vse.inputs.tokenizer import TextTokenizer

        self._verify(TOKENIZER_FILE)
        return TextTokenizer.load(self.folder)

    def embed_images(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Vectors:
        """Return the embeddings of one batch of pixels ``(B, 3, H, W)`` or features ``(B, N, F)``."""
        session = self._parallel or self._image_session
        return self._run(session, self._image_inputs(batch, lengths), ["vectors"])[0]

    @contextmanager
    def parallel_calls(self, batch_size: int) -> Iterator[ParallelCalls]:
        """Share the cores between concurrent calls of :meth:`embed_images` within the context.

        Devices other than the CPU are called by one thread.
        """
        if not self._device.is_cpu:
            _ = self._image_session  # a failure is reported before anything is read
            yield ParallelCalls(1, batch_size)
            return
        cores = self._cores()
        calls = ParallelCalls.sharing(cores, batch_size)
        threads = cores // calls.threads
        if threads not in self._parallel_sessions:
            self._parallel_sessions[threads] = self._session(IMAGE_FILE, threads=threads, spinning=False)
        self._parallel = self._parallel_sessions[threads]
        try:
            yield calls
        finally:
            self._parallel = None

    def embed_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Vectors:
        """Return the embeddings of one batch of tokens."""
        tokens, lengths = np.asarray(tokens, dtype=np.int64), np.asarray(lengths, dtype=np.int64)
        self._check_tokens(tokens, lengths)
        session = self._query_session if len(tokens) <= FEW and self._device.is_cpu else self._text_session
        return self._run(session, {"tokens": tokens, "lengths": lengths}, ["vectors"])[0]

    def _check_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Reject token ids and lengths that the text tower does not take."""
        _check_lengths(lengths, tokens.shape)
        if int(lengths.max(initial=0)) > self.config.longest_text:
            raise InputError(f"a text of {int(lengths.max())} tokens; this export reads {self.config.longest_text}")
        known = self.config.vocabulary_size
        if tokens.size and not (int(tokens.min()) >= 0 and int(tokens.max()) < known):
            bad = int(tokens.min()) if tokens.min() < 0 else int(tokens.max())
            raise InputError(f"token id {bad} is outside the vocabulary of {known}: tokenized for another model?")

    def contributions(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return what each cell adds to the embedding, ``(B, N, D)``; times a query, the evidence of each cell."""
        if not self.config.explains:
            raise InputError(NO_EVIDENCE)
        return self._run(self._image_session, self._image_inputs(batch, lengths), ["contributions"])[0]

    def cell_contributions(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], tuple[int, int] | None]:
        """Return what each grid cell adds to the embedding of one image, ``(cells, D)``, and the shape of the grid."""
        return self.contributions(pixels)[0], self.config.grid

    def video_embedder(self) -> PixelVideos:
        """Return how video files are encoded: frame by frame; an export of a model of features cannot."""
        from vse.models.encode_videos import PixelVideos

        return PixelVideos(self)

    def pooling_curves(self) -> tuple[PoolingCurve, ...]:
        """Return the curves saved with the export; empty if it was exported without them."""
        from vse.models.curves import CURVES_FILE, read_curves

        try:
            return read_curves(self.folder / CURVES_FILE)
        except InputError:
            return ()

    def backbone_fingerprint(self) -> None:
        """Return None: an export cannot take the features of its backbone."""

    def architecture(self) -> dict[str, Any]:
        """Return the configuration of the model it was exported from."""
        return self.config.source

    def fingerprint(self) -> str:
        """Return the fingerprint of the exported model, with the precision unless it is fp32."""
        return self.config.fingerprint

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None, **commit: Any) -> str:
        """Upload the export with its card to a hub repository ("owner/model"), created if needed; return its address.

        ``commit_message``, ``branch`` and ``create_pr`` are passed on to the hub.
        """
        from vse.models.hub import push_folder

        return push_folder(self.folder, repo_id, private=private, token=token, **commit)

    def _image_inputs(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None) -> dict[str, NDArray[Any]]:
        if self.config.preprocessing is not None:
            if batch.ndim != 4:
                raise InputError("this export reads images; cell features need the model it was made from")
            expected = (3, *self.config.preprocessing["size"])
            if batch.shape[1:] != expected:
                raise InputError(f"pixels {batch.shape[1:]}; this export reads {expected}")
            return {"pixels": np.ascontiguousarray(batch, dtype=np.float32)}
        if batch.ndim != 3 or batch.shape[2] != self.feature_size:
            raise InputError(f"image features must have shape (B, N, {self.feature_size}), got {batch.shape}")
        if lengths is None:
            lengths = np.full(len(batch), batch.shape[1], dtype=np.int64)
        if batch.shape[1] > self.config.largest_image_set:
            limit = self.config.largest_image_set
            raise InputError(f"a set of {batch.shape[1]} features; this export holds a pooling table up to {limit}")
        _check_lengths(lengths, batch.shape)
        return {"features": np.ascontiguousarray(batch, dtype=np.float32), "lengths": lengths}

    def _run(self, session: Any, inputs: dict[str, NDArray[Any]], outputs: list[str]) -> list[NDArray[np.float32]]:
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True  # evidence costs nothing if only the embedding is requested
        options.log_severity_level = QUIET
        if not len(next(iter(inputs.values()))):
            return [np.zeros((0, self.embed_size), dtype=np.float32)]
        try:
            with self._turn:
                found = session.run(outputs, inputs, options)
        except Exception as error:  # its errors have no common base
            raise VSEError(f"ONNX Runtime failed: {first_line(error)}") from error
        self._check_outputs(found, len(next(iter(inputs.values()))))
        return found

    def _check_outputs(self, found: list[NDArray[np.float32]], count: int) -> None:
        """Reject a tower that computes something else than the configuration says."""
        for each in found:
            if each.shape[:1] != (count,) or each.shape[-1] != self.embed_size:
                raise InputError(
                    f"{self.folder}: a tower returns shape {each.shape} for {count} inputs, config.json says "
                    f"{self.embed_size} dimensions; export it again"
                )

    @cached_property
    def _image_session(self) -> Any:
        return self._session(IMAGE_FILE)

    @cached_property
    def _text_session(self) -> Any:
        return self._session(TEXT_FILE)

    @cached_property
    def _query_session(self) -> Any:
        return self._session(TEXT_FILE, threads=1, packing=False)

    def _cores(self) -> int:
        return self.threads or available_cores()

    def _session(self, name: str, *, threads: int | None = None, spinning: bool = True, packing: bool = True) -> Any:
        """Create a session for one tower.

        ``spinning`` threads busy-wait for the next layer: faster alone, slower beside other work. ``packing`` reorders
        the weights for multiplication, which pays off after several batches.
        """
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = QUIET
        options.intra_op_num_threads = threads or self._cores()
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
        options.add_session_config_entry("session.disable_prepacking", "0" if packing else "1")
        options.enable_mem_pattern = self._device.provider != PROVIDERS["dml"].provider  # DirectML refuses it
        path = self._tower_file(name)
        self._verify(name)
        try:
            session = self._device.session(str(path), options)
        except DeviceError:
            raise
        except Exception as error:  # noqa: BLE001 (ONNX Runtime's errors have no common base)
            reason = first_line(error)
            if not self._device.is_cpu:  # its memory, or an operator that it takes and cannot run
                raise DeviceError(
                    f"device {self.device!r}: {path} cannot be loaded there ({reason}); use --device cpu"
                ) from None
            raise InputError(f"{path}: not a complete ONNX model ({reason}); export it again") from None
        self._check_session(session, name)
        return session

    def _verify(self, name: str) -> None:
        """Reject damaged files of a tower or the tokenizer."""
        verify_files(self.folder, Path(name).stem)

    def _tower_file(self, name: str) -> Path:
        """Return the ONNX file of a tower."""
        return self.folder / name

    def _check_session(self, session: Any, name: str) -> None:
        """Reject a tower of another model than the configuration."""
        mark = session.get_modelmeta().custom_metadata_map.get(MARK)
        if mark != self.config.fingerprint:
            raise InputError(
                f"{self.folder}: {name} and config.json belong to different models (was exporting interrupted?); "
                "export it again"
            )


def _check_lengths(lengths: NDArray[np.int64], shape: tuple[int, ...]) -> None:
    """Reject lengths outside 1 to the padded size."""
    if lengths.shape != shape[:1]:
        raise InputError(f"lengths must have shape ({shape[0]},), got {lengths.shape}")
    wrong = np.flatnonzero((lengths < 1) | (lengths > shape[1]))
    if wrong.size:
        where = int(wrong[0])
        raise InputError(f"lengths[{where}] is {int(lengths[where])}: a set needs 1 to {shape[1]} elements here")
