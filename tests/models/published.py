"""Tiny public image–text models with random weights, saved in the layouts that exist in the wild."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from vse.encoders.third_party import import_transformers, repair_torchvision

repair_torchvision()
pytest.importorskip("transformers")
pytest.importorskip("open_clip")

SIZE, PATCH, WIDTH, DIMS = 32, 8, 16, 12
TOWER = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
CAPTIONS = (
    "A man rides a horse on the beach.",
    "Zwei Hunde spielen im Schnee, und ein Mädchen lacht!",
    "Un gâteau d'anniversaire avec des bougies",
    "两只狗在雪地里玩耍",
    "Два кота спят на диване",
)


def transformers() -> Any:
    return import_transformers("a test model")


def bpe_lines() -> list[str]:
    import open_clip

    path = Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz")
    return gzip.decompress(path.read_bytes()).decode().split("\n")[1:48895]


def clip_tokenizer() -> Any:
    """CLIP's own tokenizer, from the vocabulary in the open_clip package."""
    import open_clip

    numbers = open_clip.tokenizer.SimpleTokenizer().encoder
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(piece, piece): number for piece, number in numbers.items()}
    merges = [tuple(line.split()) for line in bpe_lines()]
    return transformers().CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


def word_piece_tokenizer() -> Any:
    """A BERT tokenizer with the vocabulary that comes with all-MiniLM."""
    from vse.inputs.pretrained import packaged_folder

    folder = packaged_folder("all-minilm-l6-v2")
    assert folder is not None
    return transformers().BertTokenizer.from_pretrained(str(folder), model_max_length=52)


def trained_tokenizer(kind: str) -> Any:
    """A small tokenizer trained on a few captions: of SigLIP 2 (BPE) or XLM-R (Unigram)."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    if kind == "unigram":
        pipeline = Tokenizer(models.Unigram())
        pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
        special = ["<s>", "<pad>", "</s>", "<unk>"]
        trainer: Any = trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>")
    else:
        pipeline = Tokenizer(models.BPE(unk_token="<unk>"))
        pipeline.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
        special = ["<pad>", "</s>", "<s>", "<unk>"]
        trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=special)
    pipeline.train_from_iterator(CAPTIONS * 20, trainer)
    from tokenizers.processors import TemplateProcessing

    form = "<s> $A </s>" if kind == "unigram" else "$A </s>"
    pipeline.post_processor = TemplateProcessing(
        single=form, special_tokens=[(name, pipeline.token_to_id(name)) for name in ("<s>", "</s>")]
    )
    return transformers().PreTrainedTokenizerFast(
        tokenizer_object=pipeline,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        model_max_length=16,
    )


def save_transformers(folder: Path, family: str = "clip", seed: int = 0, **changed: Any) -> tuple[Any, Any, Any]:
    """Save a model of a family with tokenizer and processor; return the three."""
    import torch

    hf = transformers()
    vision = {**TOWER, "image_size": SIZE, "patch_size": PATCH}
    torch.manual_seed(seed)
    if family == "clip":
        tokenizer = clip_tokenizer()
        text = {**TOWER, "vocab_size": len(tokenizer), "eos_token_id": 49407, "bos_token_id": 49406, "pad_token_id": 1}
        config = hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=DIMS, **changed)
        model = hf.CLIPModel(config)
        processor = hf.CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    elif family == "siglip":
        tokenizer = trained_tokenizer("bpe")
        text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "projection_size": WIDTH}
        config = hf.SiglipConfig(text_config=text, vision_config=vision, **changed)
        model = hf.SiglipModel(config)
        processor = hf.SiglipImageProcessor(size={"height": SIZE, "width": SIZE})
    elif family == "chinese_clip":
        tokenizer = word_piece_tokenizer()
        text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
        config = hf.ChineseCLIPConfig(text_config=text, vision_config=vision, projection_dim=DIMS, **changed)
        model = hf.ChineseCLIPModel(config)
        processor = hf.ChineseCLIPImageProcessor(size={"height": SIZE, "width": SIZE}, do_center_crop=False)
    elif family == "metaclip_2":
        tokenizer = trained_tokenizer("unigram")
        text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "eos_token_id": 2}
        config = hf.MetaClip2Config(text_config=text, vision_config=vision, projection_dim=DIMS, **changed)
        model = hf.MetaClip2Model(config)
        processor = hf.CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    else:
        tokenizer = trained_tokenizer("unigram")
        text = {**TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 32, "project_dim": WIDTH}
        config = hf.AltCLIPConfig(text_config=text, vision_config=vision, projection_dim=DIMS, **changed)
        model = hf.AltCLIPModel(config)
        processor = hf.CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    with torch.no_grad():  # the initial values of some biases and positions are zero
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    hf.utils.logging.disable_progress_bar()
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model.eval(), tokenizer, processor


def open_clip_config() -> dict[str, Any]:
    text = {"context_length": 77, "vocab_size": 49408, "width": WIDTH, "heads": 2, "layers": 2}
    vision = {"image_size": SIZE, "layers": 2, "width": WIDTH, "head_width": 8, "patch_size": PATCH}
    return {"embed_dim": DIMS, "vision_cfg": vision, "text_cfg": text}


def save_open_clip(folder: Path, seed: int = 0) -> Any:
    """Save an open_clip model as its hub repositories hold it; return the network."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    model = open_clip.CLIP(**open_clip_config()).eval()
    folder.mkdir(parents=True, exist_ok=True)
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    preprocess = {"mean": mean, "std": std, "interpolation": "bicubic", "resize_mode": "shortest"}
    described = {"model_cfg": open_clip_config(), "preprocess_cfg": preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )
    return model


def _export(module: Any, example: Any, path: Path, inputs: list[str], output: str) -> None:
    import warnings

    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    axes = {name: {0: "batch"} for name in (*inputs, output)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, example, str(path), input_names=inputs, output_names=[output], dynamic_axes=axes, dynamo=False
        )


class _Call:
    """A function as a module for the exporter."""

    def __new__(cls, model: Any, function: Any) -> Any:
        import torch

        class Module(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, *inputs: Any) -> Any:
                return function(*inputs)

        return Module().eval()


def save_transformers_js(folder: Path, seed: int = 0) -> tuple[Any, Any]:
    """Save a CLIP as transformers.js and optimum do: ``onnx/vision_model.onnx`` and ``onnx/text_model.onnx``."""
    import torch

    model, tokenizer, _ = save_transformers(folder, seed=seed)
    (folder / "model.safetensors").unlink()
    image = _Call(model, lambda pixels: model.get_image_features(pixel_values=pixels).pooler_output)
    text = _Call(model, lambda ids: model.get_text_features(input_ids=ids).pooler_output)
    _export(image, torch.zeros(1, 3, SIZE, SIZE), folder / "onnx/vision_model.onnx", ["pixel_values"], "image_embeds")
    example = torch.full((1, 77), 49407)
    _export(text, example, folder / "onnx/text_model.onnx", ["input_ids"], "text_embeds")
    return model, tokenizer


def save_immich(folder: Path, seed: int = 0) -> Any:
    """Save an open_clip model as immich does: ``visual/model.onnx`` and ``textual/model.onnx``, token ids int32."""
    import torch

    model = save_open_clip(folder / "original", seed)
    image = _Call(model, lambda pixels: model.encode_image(pixels, normalize=True))
    text = _Call(model, lambda ids: model.encode_text(ids.long(), normalize=True))
    _export(image, torch.zeros(1, 3, SIZE, SIZE), folder / "visual/model.onnx", ["image"], "embedding")
    _export(text, torch.zeros(1, 77, dtype=torch.int32), folder / "textual/model.onnx", ["text"], "embedding")
    (folder / "config.json").write_text(json.dumps(open_clip_config()))
    described = json.loads((folder / "original/open_clip_config.json").read_text())
    (folder / "visual/preprocess_cfg.json").write_text(
        json.dumps({"size": [SIZE, SIZE], **described["preprocess_cfg"]})
    )
    clip_tokenizer().save_pretrained(folder / "textual")
    for path in (folder / "original").iterdir():
        path.unlink()
    (folder / "original").rmdir()
    return model


def save_rclip(folder: Path, seed: int = 0) -> Any:
    """Save an open_clip model as rclip does: ``visual.onnx``, ``textual.onnx``, the vocabulary in ``../tokenizer``."""
    import shutil

    import open_clip
    import torch

    torch.manual_seed(seed)
    described = open_clip_config()
    described["vision_cfg"] |= {"image_size": 256, "patch_size": 64}
    model = open_clip.CLIP(**described).eval()
    image = _Call(model, model.visual)
    text = _Call(model, model.encode_text)
    _export(image, torch.zeros(1, 3, 256, 256), folder / "visual.onnx", ["input"], "output")
    _export(text, torch.zeros(1, 77, dtype=torch.long), folder / "textual.onnx", ["input"], "output")
    place = folder.parent / "tokenizer"
    place.mkdir(exist_ok=True)
    shutil.copy(Path(open_clip.__file__).with_name("bpe_simple_vocab_16e6.txt.gz"), place)
    return model
