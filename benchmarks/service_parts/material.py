"""Create the default collection: generated scenes behind a small model. It stays for the next run."""

from __future__ import annotations

from pathlib import Path

from service_parts.texts import PARTS

SCENES, SIDE = 500, 512
EMBED_SIZE = 256


def scenes_collection(place: Path) -> Path:
    """Return the collection in ``place``, created unless it exists."""
    index = place / f"scenes-{SCENES}.vse"
    if index.exists():
        return index
    import vse
    from vse.data.scenes import write_scenes
    from vse.index.pipeline import index_folder
    from vse.index.store import EmbeddedCollection

    make_model(place / "model")
    write_scenes(place / "scenes", 0, 0, SCENES, size=SIDE)
    model = vse.load(place / "model")
    unfinished = index.with_name(f"making-{index.name}")
    if unfinished.exists():
        raise SystemExit(f"{unfinished} was left by a run that was interrupted: remove it, and run this again")
    about = {"model": model.fingerprint(), "model_source": str((place / "model").resolve())}
    with EmbeddedCollection.create(unfinished, dimensions=model.embed_size, **about) as collection:
        report = index_folder(collection, model, place / "scenes")
    if report.new != SCENES:
        raise SystemExit(f"{report.new} of {SCENES} scenes were indexed: {report.problems[:3]}")
    unfinished.rename(index)
    return index


def make_model(folder: Path) -> None:
    """Export a model that knows the words of the queries; its weights are random, at the same cost."""
    if (folder / "config.json").exists():
        return
    import torch

    from vse.convert.onnx_export import export_onnx
    from vse.inputs import Vocabulary
    from vse.models.config import BackboneConfig, BiGRUConfig, GridConfig, ModelConfig
    from vse.models.vse_model import VSEModel

    words = Vocabulary.build([" ".join(words) for words in PARTS], min_count=1).tokenizer()
    image = GridConfig(
        backbone=BackboneConfig(name="caffe-resnet", options={"blocks": [1, 1, 1, 1], "width": 8}), image_size=64
    )
    text = BiGRUConfig(vocabulary_size=words.vocab_size, word_size=64)
    torch.manual_seed(0)
    model = VSEModel.build(ModelConfig(embed_size=EMBED_SIZE, image=image, text=text), words).eval()
    folder.parent.mkdir(parents=True, exist_ok=True)
    export_onnx(model, folder)
