"""The model of two encoders with a joint embedding space, in torch: trained, saved, loaded and used to encode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vse.encoders.dual import DualImageEncoder, DualTextEncoder
from vse.encoders.functional import SMALLEST_NORM, evaluation_mode, state_fingerprint
from vse.encoders.image import GridEncoder
from vse.encoders.text import BiGRUEncoder, PluginTextEncoder, WordEncoder
from vse.errors import InputError
from vse.models.build import build_image_encoder, build_text_encoder, shared_dual
from vse.models.config import ModelConfig
from vse.models.encode import EncodingMethods, VideoMethods
from vse.models.protocols import NO_EVIDENCE, Capabilities, ParallelCalls, Vectors
from vse.pooling.functional import has_contributions, pool_with_contributions
from vse.systems.registry import build_auxiliary, equip
from vse.systems.text import CharacterEncoder

if TYPE_CHECKING:
    from vse.encoders.video import FrameBackbone
    from vse.inputs.preprocessing import ImagePreprocessing
    from vse.inputs.tokenizer import TextTokenizer
    from vse.models.curves import PoolingCurve
    from vse.models.encode_videos import VideoEmbedder
    from vse.systems.auxiliary import Auxiliary


class VSEModel(EncodingMethods, VideoMethods, nn.Module):
    """``image_encoder`` and ``text_encoder`` map into one space of unit vectors; the score is their cosine.

    Both can be called directly: ``image_encoder(features_or_pixels, lengths=…)`` and
    ``text_encoder(tokens, lengths=…)`` return ``(B, D)`` tensors with gradients. The ``encode_*`` methods take files,
    images and texts and return numpy arrays. ``auxiliary`` is what a system needs in training only.
    """

    def __init__(
        self,
        image_encoder: nn.Module,
        text_encoder: nn.Module,
        config: ModelConfig,
        tokenizer: TextTokenizer | None = None,
        auxiliary: Auxiliary | None = None,
    ) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder
        self.auxiliary = auxiliary
        self.config = config
        self.tokenizer = tokenizer
        self._preprocessing = config.preprocessing()
        self._threads_of_a_call: int | None = None
        self._frame_backbone: FrameBackbone | None = None  # no module: it is not saved with the model

    @classmethod
    def build(
        cls,
        config: ModelConfig,
        tokenizer: TextTokenizer | None = None,
        *,
        pretrained: bool = False,
        training: bool = False,
    ) -> VSEModel:
        """Build a model with random weights.

        Args:
            config: Describes the model.
            tokenizer: Tokenizer of its texts.
            pretrained: Load published weights of the image backbone, and initialise a class-words head, which takes a
                minute.
            training: Add what the configured system needs in training only, such as a caption decoder.

        Returns:
            The model; its configuration includes the preprocessing and the architecture of a transformer.

        Raises:
            InputError: If configuration and tokenizer do not match.
        """
        dual = shared_dual(config)
        image_encoder, image = build_image_encoder(config.image, config.embed_size, pretrained=pretrained, dual=dual)
        text_encoder, text = build_text_encoder(config.text, config.embed_size, dual=dual, system=config.system)
        equip(config, image_encoder, text_encoder)
        if tokenizer is not None:
            _check_tokenizer(tokenizer, text_encoder)
        complete = config.model_copy(update={"image": image, "text": text})
        model = cls(image_encoder, text_encoder, complete, tokenizer, build_auxiliary(config) if training else None)
        if pretrained and config.image.kind == "grid" and config.image.head == "class-words":
            from vse.encoders.class_words import begin_with_class_words

            begin_with_class_words(image_encoder, text_encoder, tokenizer)
        return model

    @property
    def embed_size(self) -> int:
        """Dimensions of an embedding."""
        return self.config.dimensions

    @property
    def feature_size(self) -> int:
        """Width of the features that the image encoder projects."""
        return int(cast(Any, self.image_encoder).feature_size)

    @property
    def image_backbone(self) -> nn.Module | None:
        """The network that computes the cells of an image; None for a model of features."""
        backbone: nn.Module | None = getattr(self.image_encoder, "backbone", None)
        return backbone

    def compile_encoders(self) -> None:
        """Compile the image encoder, and the text encoder if it is a transformer.

        Packed sequences of a BiGRU would break its graph into pieces.
        """
        self.image_encoder.compile(dynamic=True)
        if self.config.text.kind == "transformer":
            self.text_encoder.compile(dynamic=True)

    @property
    def grid_cells(self) -> int | None:
        """The number of cells, windows or patches that the pooling of images takes; None for a model of features."""
        if isinstance(self.image_encoder, DualImageEncoder):
            return None if self.image_encoder.pooling is None else self.image_encoder.patches
        if self.preprocessing is None or not isinstance(self.image_encoder, GridEncoder):
            return None
        return self.image_encoder.cells(*self.preprocessing.size)

    @property
    def takes_frames(self) -> bool:
        """Whether features are those of video frames."""
        return self.config.image.kind == "frames"

    @property
    def preprocessing(self) -> ImagePreprocessing | None:
        """How images are prepared; None for a model of features."""
        return self._preprocessing

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do; evidence needs a grid and a pooling that weights ranks."""
        encoder, image = self.image_encoder, self.config.image
        reads_images = self.preprocessing is not None
        return Capabilities(
            images=reads_images,
            texts=self.tokenizer is not None,
            videos=reads_images or (image.kind == "frames" and image.backbone is not None),
            evidence=reads_images and isinstance(encoder, GridEncoder) and has_contributions(encoder.pooling),
            features=image.kind != "dual",
        )

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    def forward(
        self,
        images: Tensor,
        tokens: Tensor,
        image_lengths: Tensor | None = None,
        text_lengths: Tensor | None = None,
        image_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings ``(B, D)`` of images and of texts.

        ``image_mask (B, N)`` replaces ``image_lengths`` where the valid elements are not the first ones.
        """
        image = self.image_encoder(images, lengths=image_lengths, mask=image_mask)
        return image, self.text_encoder(tokens, lengths=text_lengths)

    def video_embedder(self) -> VideoEmbedder:
        """Return how video files are encoded: frame by frame as images, or with the backbone of the frame features.

        The backbone is built on first use, with its published weights.
        """
        from vse.encoders.video import FrameBackbone
        from vse.inputs.preprocessing import ImagePreprocessing
        from vse.models.encode_videos import FeatureVideos, PixelVideos

        image = self.config.image
        if image.kind != "frames" or image.backbone is None:
            return PixelVideos(self)
        if self._frame_backbone is None:
            self._frame_backbone = FrameBackbone(
                image.backbone.name, image.backbone.options, image.backbone.fingerprint
            )
        how = ImagePreprocessing.from_json(image.backbone.preprocessing)
        see = partial(self._frame_backbone.features, device=self.device)
        return FeatureVideos(self, how, image.backbone.frames, see)

    def embed_images(self, batch: NDArray[Any], lengths: NDArray[np.int64] | None = None) -> Vectors:
        """Return the embeddings of one batch of pixels or features."""
        return self._embed(self.image_encoder, batch, lengths)

    @contextmanager
    def parallel_calls(self, batch_size: int) -> Iterator[ParallelCalls]:
        """Share torch's threads between concurrent calls of :meth:`embed_images` within the context.

        The model is in evaluation mode within it. Devices other than the CPU are called by one thread.
        """
        threads = torch.get_num_threads()
        alone = ParallelCalls(1, batch_size)
        calls = ParallelCalls.sharing(threads, batch_size) if self.device.type == "cpu" else alone
        try:
            with evaluation_mode(self):
                self._threads_of_a_call = threads // calls.threads
                yield calls
        finally:
            self._threads_of_a_call = None
            torch.set_num_threads(threads)

    def embed_tokens(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Vectors:
        """Return the embeddings of one batch of tokens."""
        return self._embed(self.text_encoder, tokens, lengths)

    @torch.inference_mode()
    def cell_contributions(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float32], tuple[int, int] | None]:
        """Return what each grid cell or window adds to the embedding of one image.

        Args:
            pixels: The image, ``(1, 3, H, W)``.

        Returns:
            The contributions ``(cells, D)``, which add up to the embedding, and the rows and columns of the grid; None
            if they are those of windows.

        Raises:
            InputError: If the model has no grid, or its pooling does not weight ranks.
        """
        if not self.capabilities.evidence:
            raise InputError(NO_EVIDENCE)
        encoder: Any = self.image_encoder
        if not isinstance(encoder, GridEncoder):
            raise InputError("this model has no evidence: its embedding is not a sum over the cells of an image")
        with evaluation_mode(encoder):
            batch = torch.from_numpy(pixels).to(self.device, next(self.parameters()).dtype)
            pooled, shares = pool_with_contributions(encoder.pooling, *encoder.elements(batch))
            relative = shares[0] / (pooled[0].norm() + SMALLEST_NORM)
        grid = encoder.backbone.grid(*pixels.shape[2:]) if encoder.windows is None else None
        return relative.float().cpu().numpy(), grid

    def pooling_curves(self) -> list[PoolingCurve]:
        """Return the weights that the poolings of both towers give to each rank."""
        from vse.models.learned_curves import curves_of

        return curves_of(self)

    def backbone_fingerprint(self) -> str | None:
        """Return the fingerprint of the image backbone; None for a model of features."""
        encoder = self.image_encoder
        return state_fingerprint(encoder.backbone.state_dict()) if isinstance(encoder, GridEncoder) else None

    def architecture(self) -> dict[str, Any]:
        """Return the configuration, as in ``config.json``."""
        return self.config.model_dump()

    def save(self, folder: str | Path) -> Path:
        """Write ``config.json``, ``model.safetensors`` and the tokenizer into ``folder``, and return it."""
        from vse.models.storage import save_model

        return save_model(self, Path(folder))

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        revision: str | None = None,
        device: str | torch.device = "cpu",
        token: str | None = None,
    ) -> VSEModel:
        """Load a saved model or a public dual encoder from a folder or the hub.

        Args:
            source: A local folder or a hub id, ``"owner/model"``.
            revision: Branch, tag or commit of the hub repository.
            device: Where to put the model.
            token: Access token of a private repository; by default the one of the logged-in user.

        Returns:
            The model, in evaluation mode.

        Raises:
            InputError: If there is no such model, it is an export (:func:`vse.load` runs it) or it only scores pairs.
        """
        from vse.models.hub import pretrained_folder
        from vse.models.sources import load_torch

        folder = pretrained_folder(source, revision=revision, token=token)
        return load_torch(source, folder=folder, revision=revision).to(device)

    def save_pretrained(
        self, save_directory: str | Path, *, repo_id: str | None = None, push_to_hub: bool = False, **commit: Any
    ) -> str | None:
        """Save the model with its card, and upload it if asked.

        Args:
            save_directory: Where to save it; created if needed.
            repo_id: Repository to upload to; by default the name of the folder.
            push_to_hub: Whether to upload it.
            commit: Arguments of :meth:`push_to_hub`.

        Returns:
            The address of the repository; None without an upload.
        """
        from vse.models.card import save_with_card

        folder = save_with_card(self, save_directory)
        return self.push_to_hub(repo_id or folder.name, **commit) if push_to_hub else None

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None, **commit: Any) -> str:
        """Upload the model and its card to a hub repository ("owner/model"), created if needed; return its address.

        ``commit_message``, ``branch`` and ``create_pr`` are passed on to the hub.
        """
        from vse.models.hub import push

        return push(self, repo_id, private=private, token=token, **commit)

    def fingerprint(self) -> str:
        """Return a short name for these weights and inputs: equal fingerprints mean equal embeddings."""
        from vse.models.storage import fingerprint

        return fingerprint(self)

    @torch.inference_mode()
    def _embed(self, encoder: nn.Module, batch: NDArray[Any], lengths: NDArray[np.int64] | None) -> Vectors:
        if self._threads_of_a_call is not None:
            torch.set_num_threads(self._threads_of_a_call)  # it counts for the thread that calls it
        sizes = None if lengths is None else torch.from_numpy(lengths).to(self.device)
        inputs = torch.from_numpy(batch).to(self.device)
        if inputs.is_floating_point():
            inputs = inputs.to(next(self.parameters()).dtype)
        with evaluation_mode(encoder):
            return encoder(inputs, lengths=sizes).float().cpu().numpy()


def _check_tokenizer(tokenizer: TextTokenizer, encoder: Any) -> None:
    """Reject a tokenizer whose ids or lengths the encoder cannot take."""
    if isinstance(encoder, BiGRUEncoder | WordEncoder | PluginTextEncoder):
        known = tokenizer.vocab_size
        expected = encoder.vocabulary_size if isinstance(encoder, PluginTextEncoder) else encoder.embed.num_embeddings
        if known != expected:
            raise InputError(f"the tokenizer knows {known} words, the text encoder {expected}")
        return
    known = tokenizer.vocab_size
    if isinstance(encoder, CharacterEncoder):
        if known != encoder.vocabulary_size:
            raise InputError(f"the tokenizer knows {known} characters, the text encoder {encoder.vocabulary_size}")
        return
    dual = isinstance(encoder, DualTextEncoder)
    expected = encoder.vocabulary_size if dual else int(encoder.transformer.config.vocab_size)
    if known > expected:
        raise InputError(f"the tokenizer knows {known} pieces of words, the text encoder {expected}: another model's?")
    longest = encoder.max_tokens
    if longest is not None and tokenizer.max_length > longest:
        raise InputError(
            f"the tokenizer cuts texts at {tokenizer.max_length} tokens and the text encoder reads {longest}: "
            f"load the tokenizer with max_length={longest}"
        )
