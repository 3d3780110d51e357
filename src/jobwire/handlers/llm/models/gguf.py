"""Converts the embedding model's weights from safetensors to GGUF, the format of llama.cpp.

Called by `files.py` once; the result is cached. It supports one model family (BERT with WordPiece,
32-bit floats) and copies the numbers unchanged.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

VERSION: Final = "v1"
"""Part of the cached file's name; raise it when the output changes."""

MAGIC: Final = b"GGUF"
_FORMAT: Final = 3
_ALIGNMENT: Final = 32
_F32: Final = 0
_MEAN_POOLING: Final = 1
_NORMAL: Final = 1
_CONTROL: Final = 3
_WORD_START: Final = "\u2581"

_LAYER: Final = re.compile(r"encoder\.layer\.(\d+)\.(.+)\.(weight|bias)")
_LAYER_NAMES: Final = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_NAMES: Final = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm.weight": "token_embd_norm.weight",
    "embeddings.LayerNorm.bias": "token_embd_norm.bias",
}


class _Config(msgspec.Struct):
    """The dimensions in the model's config.json."""

    vocab_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    layer_norm_eps: float
    type_vocab_size: int


class _TensorEntry(msgspec.Struct):
    """An entry of the safetensors header; `__metadata__` has none of these members."""

    dtype: str = ""
    shape: list[int] = []
    data_offsets: tuple[int, int] = (0, 0)


class _Tensor(NamedTuple):
    """A tensor and its position in the source file."""

    name: str
    shape: Sequence[int]
    start: int
    size: int


def convert(folder: Path, target: Path) -> None:
    """Convert the model in `folder` to the file `target`."""
    config = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Config)
    words = (folder / "vocab.txt").read_text("utf-8").split("\n")[: config.vocab_size]
    with (folder / "model.safetensors").open("rb") as source, target.open("wb") as out:
        tensors = list(_tensors(source))
        out.write(_header(config, words, tensors))
        for tensor in tensors:
            out.write(b"\0" * (-out.tell() % _ALIGNMENT))
            source.seek(tensor.start)
            out.write(source.read(tensor.size))


def _tensors(source: BinaryIO) -> Iterator[_Tensor]:
    (length,) = struct.unpack("<Q", source.read(8))
    entries = msgspec.json.decode(source.read(length), type=dict[str, _TensorEntry])
    for source_name, entry in entries.items():
        if (name := _gguf_name(source_name)) is not None:
            assert entry.dtype == "F32", f"{source_name} is {entry.dtype}, not F32"
            start, end = entry.data_offsets
            yield _Tensor(name, entry.shape, 8 + length + start, end - start)


def _gguf_name(source_name: str) -> str | None:
    """None for tensors that embeddings do not need."""
    if found := _LAYER.fullmatch(source_name):
        layer, part, kind = found.groups()
        return f"blk.{layer}.{_LAYER_NAMES[part]}.{kind}"
    return _NAMES.get(source_name)


# ── the header of the file ────────────────────────────────────────────────────────────────────────


def _header(config: _Config, words: Sequence[str], tensors: Sequence[_Tensor]) -> bytes:
    metadata = [
        _text("general.architecture", "bert"),
        _text("general.name", "all-MiniLM-L6-v2"),
        _number("general.alignment", _ALIGNMENT),
        _number("general.file_type", _F32),
        _number("bert.block_count", config.num_hidden_layers),
        _number("bert.context_length", config.max_position_embeddings),
        _number("bert.embedding_length", config.hidden_size),
        _number("bert.feed_forward_length", config.intermediate_size),
        _number("bert.attention.head_count", config.num_attention_heads),
        _fraction("bert.attention.layer_norm_epsilon", config.layer_norm_eps),
        _flag("bert.attention.causal", False),
        _number("bert.pooling_type", _MEAN_POOLING),
        _text("tokenizer.ggml.model", "bert"),
        _number("tokenizer.ggml.token_type_count", config.type_vocab_size),
        _number("tokenizer.ggml.bos_token_id", words.index("[CLS]")),
        _number("tokenizer.ggml.eos_token_id", words.index("[SEP]")),
        _number("tokenizer.ggml.unknown_token_id", words.index("[UNK]")),
        _number("tokenizer.ggml.seperator_token_id", words.index("[SEP]")),  # the format's spelling
        _number("tokenizer.ggml.padding_token_id", words.index("[PAD]")),
        _number("tokenizer.ggml.cls_token_id", words.index("[CLS]")),
        _number("tokenizer.ggml.mask_token_id", words.index("[MASK]")),
        _texts("tokenizer.ggml.tokens", [_piece(word) for word in words]),
        _numbers("tokenizer.ggml.token_type", [_kind(word) for word in words]),
    ]
    header = MAGIC + struct.pack("<IQQ", _FORMAT, len(tensors), len(metadata)) + b"".join(metadata)
    at = 0
    for tensor in tensors:
        shape = tuple(reversed(tensor.shape))
        header += _string(tensor.name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        header += struct.pack("<IQ", _F32, at)
        at += -(-tensor.size // _ALIGNMENT) * _ALIGNMENT
    return header


def _is_control(word: str) -> bool:
    return word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _piece(word: str) -> str:
    """WordPiece marks continuations (##ing), llama.cpp marks the start of a word."""
    if _is_control(word):
        return word
    return word[2:] if word.startswith("##") else _WORD_START + word


def _kind(word: str) -> int:
    return _CONTROL if _is_control(word) else _NORMAL


# A metadata entry is its name, the number of its type and the value.


def _number(name: str, value: int) -> bytes:
    return _string(name) + struct.pack("<II", 4, value)


def _fraction(name: str, value: float) -> bytes:
    return _string(name) + struct.pack("<If", 6, value)


def _flag(name: str, value: bool) -> bytes:
    return _string(name) + struct.pack("<I?", 7, value)


def _text(name: str, value: str) -> bytes:
    return _string(name) + struct.pack("<I", 8) + _string(value)


def _texts(name: str, values: Sequence[str]) -> bytes:
    return _string(name) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(_string, values))


def _numbers(name: str, values: Sequence[int]) -> bytes:
    array = _string(name) + struct.pack("<IIQ", 9, 5, len(values))
    return array + struct.pack(f"<{len(values)}i", *values)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
