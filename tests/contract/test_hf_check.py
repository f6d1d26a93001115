"""Models whose cache does not serve every prompt: found out when they load, and asked right or
refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from needlemap.errors import SettingsError, Unmeasured
from needlemap.models.walk import Ids, Walk

torch = pytest.importorskip("torch", reason="needs torch: python3 -m pip install '.[hf]'")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers: python3 -m pip install '.[hf]'"
)

from needlemap.models.hf_cache import Snapshot, configured_switch  # noqa: E402
from needlemap.models.hf_check import settle  # noqa: E402
from needlemap.models.hf_engine import CacheMode, HuggingFaceEngine  # noqa: E402

SWITCH = 60  # tokens; prompts lie on both sides of it
ANSWER = 6
SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": SWITCH,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
MAKERS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "llama longrope": lambda: transformers.LlamaConfig(**SHAPE, rope_parameters=LONG),
    "phi3 longrope": lambda: transformers.Phi3Config(
        **SHAPE, rope_parameters=LONG, original_max_position_embeddings=SWITCH
    ),
    "llama dynamic": lambda: transformers.LlamaConfig(
        **{**SHAPE, "max_position_embeddings": SWITCH}, rope_parameters=DYNAMIC
    ),
    "bamba": lambda: transformers.BambaConfig(
        **SHAPE,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=16,
        mamba_n_groups=1,
        mamba_d_state=8,
        mamba_chunk_size=16,
    ),
    "minimax": lambda: transformers.MiniMaxConfig(
        **SHAPE, num_local_experts=2, num_experts_per_tok=1, head_dim=16, block_size=16
    ),
    "mistral": lambda: transformers.MistralConfig(**SHAPE, sliding_window=24),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **SHAPE,
        head_dim=16,
        sliding_window=24,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "bert": lambda: transformers.BertConfig(**SHAPE),
    "openai-gpt": lambda: transformers.OpenAIGPTConfig(
        vocab_size=256, n_positions=1024, n_embd=64, n_layer=2, n_head=4, initializer_range=0.3
    ),
    "deepseek_v4": lambda: transformers.DeepseekV4Config(
        **{**SHAPE, "num_key_value_heads": 1},
        moe_intermediate_size=32,
        head_dim=16,
        q_lora_rank=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        layer_types=["heavily_compressed_attention", "compressed_sparse_attention"],
        mlp_layer_types=["moe", "moe"],
        sliding_window=24,
        o_groups=2,
        o_lora_rank=16,
        index_n_heads=2,
        index_head_dim=32,
        index_topk=4,
    ),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=256, hidden_size=32, state_size=8, num_hidden_layers=2, initializer_range=0.3
    ),
    "roberta": lambda: transformers.RobertaConfig(**SHAPE, is_decoder=True),
    "xlnet": lambda: transformers.XLNetConfig(
        vocab_size=256, d_model=64, n_layer=2, n_head=4, d_inner=96, initializer_range=0.3
    ),
    "xlm": lambda: transformers.XLMConfig(
        vocab_size=256, emb_dim=64, n_layers=2, n_heads=4, init_std=0.3, embed_init_std=0.3
    ),
    "cpmant": lambda: transformers.CpmAntConfig(
        vocab_size=256,
        hidden_size=64,
        num_attention_heads=4,
        dim_head=16,
        dim_ff=96,
        num_hidden_layers=2,
        init_std=0.3,
        prompt_length=8,
    ),
}


@cache
def model(name: str) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(MAKERS[name](), dtype=torch.float32).eval()


def prompts() -> list[Ids]:
    """Of 20 to 120 tokens, long and short by turns, that share what they begin with. One ends just
    before the switch, so that its answer crosses it; others reach it exactly, or pass it by one."""
    draw = np.random.default_rng(1)
    trunk = draw.integers(5, 256, 120)
    found = []
    for length, parting in [
        (90, 20),
        (90, 40),
        (40, 20),
        (SWITCH - 2, 30),
        (100, 30),
        (SWITCH, 50),
        (SWITCH + 1, 50),
    ]:
        tail = draw.integers(5, 256, length - parting)
        found.append(np.concatenate([trunk[:parting], tail]).astype(np.int32))
    return [*found, trunk[:30].astype(np.int32), trunk.astype(np.int32)]


def generated(model: Any, ids: Ids) -> tuple[int, ...]:
    """What transformers' own `generate` answers, by a model that was asked nothing before."""
    # Rotary modules drop the positions of longer texts.
    model(torch.zeros(1, 1, dtype=torch.long), use_cache=False)
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    said = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=ANSWER,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return tuple(said[0, len(ids) :].tolist())


def uncached(model: Any, ids: Ids) -> tuple[int, ...]:
    """The answer by whole passes."""
    answer: list[int] = []
    with torch.inference_mode():
        for _ in range(ANSWER):
            tokens = torch.tensor([[*ids.tolist(), *answer]])
            answer.append(int(model(tokens).logits[0, -1].argmax()))
    return tuple(answer)


def answers_of(engine: HuggingFaceEngine, walk: Sequence[Ids]) -> tuple[list[tuple[int, ...]], int]:
    """Answers, and how many prompt tokens came from the cache. Prompts know where later ones
    part."""
    asking = Walk(engine, [])
    found = [asking.ask(ids, ANSWER, partings=(20, 30, 50)) for ids in walk]
    return [each.answer for each in found], sum(each.cached for each in found)


@pytest.mark.parametrize("chunk", [17, 2048])
@pytest.mark.parametrize(
    "name", ["llama", "llama longrope", "phi3 longrope", "llama dynamic", "bamba"]
)
def test_answers_are_those_of_generate_also_across_the_switch(name: str, chunk: int) -> None:
    engine = HuggingFaceEngine(model(name), chunk)
    settle(engine)
    answers, cached = answers_of(engine, prompts())
    assert answers == [generated(model(name), ids) for ids in prompts()]
    assert cached > 0


@pytest.mark.parametrize("name", ["llama longrope", "phi3 longrope", "llama dynamic"])
def test_the_switch_is_found_in_the_configuration_and_told(name: str) -> None:
    found = configured_switch(model(name).config.to_dict())
    assert found is not None
    assert (found.at, found.steady) == (SWITCH, "dynamic" not in name)
    assert f"beyond {SWITCH} tokens" in settle(HuggingFaceEngine(model(name), 2048))[0]
    assert configured_switch(model("llama").config.to_dict()) is None


@pytest.mark.parametrize("name", ["llama longrope", "llama dynamic"])
def test_a_given_answer_that_crosses_the_switch_is_weighed_as_it_would_be_written(
    name: str,
) -> None:
    engine = HuggingFaceEngine(model(name), 2048)
    ids = prompts()[3]
    said = Walk(engine, []).ask(ids, ANSWER).answer
    assert Walk(engine, []).weigh(ids, np.array(said, np.int32)).greedy


@pytest.mark.parametrize("name", ["openai-gpt", "roberta", "mamba"])
def test_models_without_a_cache_that_serves_later_tokens_answer_as_whole_passes(name: str) -> None:
    engine = HuggingFaceEngine(model(name), 17)
    settle(engine)
    answers, _ = answers_of(engine, prompts())
    assert answers == [uncached(model(name), ids) for ids in prompts()]


def test_a_model_that_makes_no_cache_says_what_that_costs() -> None:
    notes = settle(HuggingFaceEngine(model("openai-gpt"), 2048))
    assert "each answer token computes the whole prompt" in notes[0]


def test_an_encoder_is_refused_and_named() -> None:
    with pytest.raises(SettingsError, match="it is an encoder"):
        settle(HuggingFaceEngine(model("bert"), 2048))


def own(kind: Any, **fields: Any) -> Any:
    """A tiny Llama with code of its own."""
    torch.manual_seed(0)
    made = kind(MAKERS["llama"]()).eval()
    vars(made).update(fields)
    return made


class Remembering(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Code of one's own with a running state beside its cache: cropping the cache does not bring it
    back. forgets: a text that starts from nothing begins with no state."""

    forgets = True

    def forward(self, input_ids: Any, past_key_values: Any = None, **fields: Any) -> Any:
        if self.forgets and (past_key_values is None or not past_key_values.get_seq_length()):
            self.state = 0.0
        made = super().forward(input_ids, past_key_values=past_key_values, **fields)
        ramp = torch.arange(1, input_ids.shape[1] + 1) + getattr(self, "state", 0.0)
        made.logits = made.logits * (1 + torch.cos(ramp))[None, -made.logits.shape[1] :, None]
        self.state = float(ramp[-1])
        return made


def test_a_state_beside_the_cache_is_noticed_and_every_prompt_computed_in_full() -> None:
    remembering = own(Remembering)
    engine = HuggingFaceEngine(remembering, 2048)
    notes = settle(engine)
    assert not engine.way.share
    assert "every prompt is computed in full" in notes[0]
    answers, cached = answers_of(engine, prompts())
    assert cached == 0
    assert answers == [generated(remembering, ids) for ids in prompts()]


def test_a_state_that_nothing_resets_is_refused() -> None:
    with pytest.raises(SettingsError, match="computed twice without a cache, come out differently"):
        settle(HuggingFaceEngine(own(Remembering, forgets=False), 2048))


class Careless(HuggingFaceEngine):
    """An engine that loses a token where it crops."""

    def _cropped_cache(self, length_tokens: int) -> Any:
        return super()._cropped_cache(max(1, length_tokens - 1))


def test_an_engine_that_crops_wrongly_is_noticed() -> None:
    engine = Careless(model("llama"), 2048)
    settle(engine)
    assert engine.way == CacheMode(share=False)


def test_windows_keep_the_last_tokens_only_and_are_copied_where_prompts_part() -> None:
    engine = HuggingFaceEngine(model("mistral"), 2048)
    settle(engine)
    engine.extend(prompts()[0])
    assert engine.cache.layers[0].keys.shape[-2] < 24
    answers, cached = answers_of(engine, prompts())
    assert answers == [generated(model("mistral"), ids) for ids in prompts()]
    assert cached > 0


def test_full_layers_beside_windows_are_written_in_place() -> None:
    engine = HuggingFaceEngine(model("gemma3"), 2048)
    assert settle(engine) == ()
    engine.extend(prompts()[0])
    window, full = engine.cache.layers
    assert window.keys.shape[-2] < 24
    assert full.keys.shape[-2] == 90
    assert full.rooms[0].shape[-2] >= 90
    assert full.keys.data_ptr() == full.rooms[0].data_ptr()
    engine.extend(prompts()[1][:1])
    assert full.rooms[0].shape[-2] > 1024
    answers, cached = answers_of(engine, prompts())
    assert answers == [generated(model("gemma3"), ids) for ids in prompts()]
    assert cached > 0


class OtherCache(transformers.DynamicCache):  # type: ignore[misc, name-defined]
    """A cache of one's own, which may hold more than its layers."""


class OtherLayer(transformers.cache_utils.DynamicLayer):  # type: ignore[misc, name-defined]
    """A layer of one's own."""


class Caching(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Code of one's own that makes its own cache."""

    layer: Any = None

    def forward(self, input_ids: Any, past_key_values: Any = None, **fields: Any) -> Any:
        if past_key_values is None and fields.get("use_cache") is not False:
            if self.layer is None:
                past_key_values = OtherCache()
            else:
                past_key_values = transformers.DynamicCache()
                past_key_values.layers = [self.layer() for _ in range(2)]
        return super().forward(input_ids, past_key_values=past_key_values, **fields)


@pytest.mark.parametrize("layer", [None, OtherLayer])
def test_a_cache_of_an_unknown_kind_is_not_reused(layer: Any) -> None:
    caching = own(Caching, layer=layer)
    engine = HuggingFaceEngine(caching, 2048)
    (note,) = settle(engine)
    assert note.endswith("every prompt is computed in full, in one piece")
    answers, cached = answers_of(engine, prompts())
    assert answers == [generated(caching, ids) for ids in prompts()]
    assert cached == 0


def test_a_check_takes_a_dozen_short_passes_and_a_longer_text() -> None:
    calls: list[int] = []
    hook = model("llama").register_forward_pre_hook(
        lambda _, __, fields: calls.append(fields["input_ids"].shape[1]), with_kwargs=True
    )
    settle(HuggingFaceEngine(model("llama"), 2048))
    hook.remove()
    short = [size for size in calls if size <= 48]
    assert len(short) <= 12
    assert sum(short) < 200
    assert len(calls) - len(short) <= 3, (
        "one longer text, without a cache and with one, in two pieces"
    )
    assert sum(calls) - sum(short) <= 2 * 640


class Drawing(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Code of one's own that draws random numbers in long texts, as Reformer's hashing does."""

    beyond = 64

    def forward(self, input_ids: Any, **fields: Any) -> Any:
        made = super().forward(input_ids, **fields)
        if input_ids.shape[1] > self.beyond:
            made.logits = made.logits + torch.randn_like(made.logits)
        return made


def test_a_model_that_draws_random_numbers_in_longer_texts_is_refused() -> None:
    with pytest.raises(SettingsError, match="it draws random numbers where it computes 640 tokens"):
        settle(HuggingFaceEngine(own(Drawing), 2048))


def test_a_model_that_draws_random_numbers_beyond_the_check_gives_no_answer_there() -> None:
    engine = HuggingFaceEngine(own(Drawing, beyond=700), 2048)
    settle(engine)
    assert len(Walk(engine, []).ask(np.arange(5, 205, dtype=np.int32), ANSWER).answer) == ANSWER
    with pytest.raises(Unmeasured, match="asked twice, it answers differently"):
        Walk(engine, []).ask(np.resize(np.arange(5, 205, dtype=np.int32), 800), ANSWER)


class Looking(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Code of one's own that looks ahead in texts of more than 100 tokens."""

    def forward(self, input_ids: Any, **fields: Any) -> Any:
        made = super().forward(input_ids, **fields)
        if input_ids.shape[1] > 100:
            made.logits = made.logits.roll(-1, 1)
        return made


def test_looking_ahead_only_in_longer_texts_is_noticed() -> None:
    with pytest.raises(SettingsError, match="changes with the tokens behind it"):
        settle(HuggingFaceEngine(own(Looking), 2048))


class Late(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Code of one's own that goes wrong where it continues a text beyond 100 tokens."""

    def forward(self, input_ids: Any, past_key_values: Any = None, **fields: Any) -> Any:
        seen = past_key_values.get_seq_length() if past_key_values is not None else 0
        made = super().forward(input_ids, past_key_values=past_key_values, **fields)
        if seen and input_ids.shape[1] > 1 and seen + input_ids.shape[1] > 100:
            made.logits = made.logits.flip(-1)
        return made


def test_a_cache_that_goes_wrong_only_in_longer_texts_is_noticed() -> None:
    engine = HuggingFaceEngine(own(Late), 17)
    settle(engine)
    assert not engine.way.share
    answers, _ = answers_of(engine, prompts())
    assert answers == [generated(own(Late), ids) for ids in prompts()]


def test_attention_that_picks_its_tokens_is_computed_in_one_piece() -> None:
    engine = HuggingFaceEngine(model("deepseek_v4"), 17)
    settle(engine)
    answers, cached = answers_of(engine, prompts())
    assert answers == [generated(model("deepseek_v4"), ids) for ids in prompts()]
    assert (engine.way.pieces, cached) == (False, 0)


@pytest.mark.parametrize("name", ["xlnet", "xlm", "cpmant"])
def test_a_model_that_looks_ahead_and_prepares_its_own_generate_is_asked_through_that(
    name: str,
) -> None:
    engine = HuggingFaceEngine(model(name), 17)
    (note,) = settle(engine)
    assert "asked anew of its own `generate`" in note
    answers, cached = answers_of(engine, prompts()[:3])
    assert answers == [generated(model(name), ids) for ids in prompts()[:3]]
    assert cached == 0


def test_a_given_answer_is_weighed_through_a_model_s_own_generate() -> None:
    engine = HuggingFaceEngine(model("xlnet"), 2048)
    settle(engine)
    said = np.array(generated(model("xlnet"), prompts()[1]), np.int32)
    weighed = Walk(engine, []).weigh(prompts()[1], said)
    assert weighed.greedy
    assert len(weighed.logprobs) == ANSWER
    assert not Walk(engine, []).weigh(prompts()[1], said[::-1].copy()).greedy


class Jumpy(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Code of one's own that jumps by a hair of rounding, as experts picked by one do. jump: how
    far."""

    jump = 0.005

    def forward(self, input_ids: Any, **fields: Any) -> Any:
        made = super().forward(input_ids, **fields)
        made.logits = made.logits + self.jump * torch.sin(1e7 * made.logits)
        return made


def test_a_model_whose_answers_hang_on_rounding_shares_nothing() -> None:
    engine = HuggingFaceEngine(own(Jumpy, jump=0.1), 2048)
    settle(engine)
    assert not engine.way.share


def test_a_snapshot_brings_every_kind_of_layer_back_and_stays_as_it_is() -> None:
    layers = transformers.cache_utils
    window = layers.DynamicSlidingWindowLayer(sliding_window=4)
    hybrid, full = layers.LinearAttentionAndFullAttentionLayer(), layers.DynamicLayer()
    kept = transformers.DynamicCache()
    kept.layers = [window, hybrid, full, layers.DummyLayer()]
    draw = torch.Generator().manual_seed(0)

    def add(tokens: int) -> None:
        for layer in (window, hybrid, full):
            layer.update(*torch.randn(2, 1, 1, tokens, 2, generator=draw))
        hybrid.update_recurrent_state(torch.randn(1, 2, generator=draw))

    def held() -> list[Any]:
        tensors = [each for layer in (window, hybrid, full) for each in (layer.keys, layer.values)]
        return [each.clone() for each in (*tensors, hybrid.recurrent_states[0])]

    add(6)
    before, snapshot = held(), Snapshot.of(kept)
    for _ in range(2):
        add(3)
        assert not all(map(torch.equal, before[::2], held()[::2]))
        snapshot.put(kept, 6)
        assert all(map(torch.equal, before, held()))
        assert kept.get_seq_length() == 6
