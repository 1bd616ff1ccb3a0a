"""Make the starting policy of a task: a byte-pair tokenizer and a 0.7M-parameter Qwen2, trained from scratch.

    python sample_runs/lab/pretrain.py bandit|tool|tool-few|lake

The policy learns to imitate the diverse, imperfect traces of `tasks`. It takes a few minutes on one CPU
core and is written below the workspace (see `workspace.py`), from where every run of that task starts.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import tasks
import workspace

try:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
except ModuleNotFoundError:
    raise SystemExit(workspace.NEEDED) from None

SPECIAL_TOKENS = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
IGNORED = -100
VOCABULARY = 1000
TOKENIZER_DIALOGUES = 6000
COPY_WIDTH = 80

Dialogue = list[tuple[str, str]]
Example = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Phase:
    """One stretch of pretraining.

    Attributes
    ----------
    steps, learning_rate, batch
        The usual.
    copy_share
        Share of each batch that is a random sequence, repeated. Such examples teach the model to copy from
        its prompt, which a small model does not learn from the traces alone.
    """

    steps: int
    learning_rate: float
    batch: int
    copy_share: float = 0.0


PHASES = {
    "bandit": [Phase(500, 2e-3, 32)],
    "tool": [Phase(400, 2e-3, 32), Phase(360, 1e-3, 32, copy_share=0.5), Phase(240, 5e-4, 32)],
    "tool-few": [Phase(150, 2e-3, 32)],
    "lake": [Phase(600, 2e-3, 16)],
}


def sample_dialogue(task: str, rng: random.Random) -> Dialogue:
    """Draw the turns of one demonstration as (user text, assistant text) pairs."""
    if task == "bandit":
        bandit = tasks.bandit_prompt(rng)
        return [(bandit.text, tasks.bandit_trace(rng, bandit))]
    if task in ("tool", "tool-few"):
        request = tasks.tool_prompt(rng, few_values=task == "tool-few")
        return [(request.text, tasks.tool_trace(rng, request))]
    return _lake_dialogue(rng)


def _lake_dialogue(rng: random.Random, max_turns: int = 4) -> Dialogue:
    lake, turns = tasks.new_lake(rng), []
    for _ in range(max_turns):
        reply = tasks.lake_trace(rng, lake)
        turns.append((lake.render(), reply))
        action = tasks.parse_move(reply)
        if action is not None:
            lake = lake.move(action)
        if lake.solved or lake.drowned:
            break
    return turns


def user_text(message: str) -> str:
    """Wrap a user message so that the assistant speaks next."""
    return f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"


def train_tokenizer(task: str, rng: random.Random) -> PreTrainedTokenizerFast:
    """Train a byte-pair tokenizer on demonstrations of the task."""
    texts = [
        "".join(f"{user_text(user)}{reply}<|im_end|>\n" for user, reply in sample_dialogue(task, rng))
        for _ in range(TOKENIZER_DIALOGUES)
    ]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<|pad|>", eos_token="<|im_end|>", padding_side="left")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Build the untrained policy: 3 layers, width 128."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, dialogue: Dialogue) -> Example:
    """Tokenize a dialogue; only assistant tokens carry a label."""
    ids: list[int] = []
    labels: list[int] = []
    newline = tokenizer("\n")["input_ids"]
    for user, reply in dialogue:
        prompt_ids = tokenizer(user_text(user))["input_ids"]
        reply_ids = tokenizer(reply + "<|im_end|>")["input_ids"]
        ids += prompt_ids + reply_ids + newline
        labels += [IGNORED] * len(prompt_ids) + reply_ids + [IGNORED] * len(newline)
    return ids, labels


def copy_example(vocabulary: int, rng: random.Random) -> Example:
    """Repeat a random sequence of tokens; the label starts with the first repetition."""
    period = rng.randint(5, 25)
    pattern = [rng.randrange(len(SPECIAL_TOKENS), vocabulary) for _ in range(period)]
    ids = (pattern * COPY_WIDTH)[: rng.randint(2 * period, COPY_WIDTH)]
    return ids, [IGNORED] * period + ids[period:]


def collate(examples: list[Example], pad: int) -> dict[str, torch.Tensor]:
    """Pad on the right and build the attention mask."""
    width = max(len(ids) for ids, _ in examples)
    input_ids = torch.full((len(examples), width), pad)
    labels = torch.full((len(examples), width), IGNORED)
    mask = torch.zeros((len(examples), width), dtype=torch.long)
    for row, (ids, targets) in enumerate(examples):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(targets)] = torch.tensor(targets)
        mask[row, : len(ids)] = 1
    return {"input_ids": input_ids, "labels": labels, "attention_mask": mask}


def train_phase(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, task: str, phase: Phase, rng: random.Random
) -> float:
    """Run one phase with warm-up and linear decay; returns the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=phase.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 40) * (1 - 0.9 * step / phase.steps)
    )
    copies = round(phase.batch * phase.copy_share)
    model.train()
    loss = torch.zeros(())
    for step in range(phase.steps):
        examples = [encode(tokenizer, sample_dialogue(task, rng)) for _ in range(phase.batch - copies)]
        examples += [copy_example(len(tokenizer), rng) for _ in range(copies)]
        loss = model(**collate(examples, tokenizer.pad_token_id)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"{task} step {step}/{phase.steps} loss {loss.item():.3f}", flush=True)
    return loss.item()


def pretrain(task: str, seed: int = 0) -> Path:
    """Make the starting policy of a task, unless it is there already; returns its folder."""
    folder = workspace.base_folder(task)
    if (folder / "pretrain.json").is_file():
        return folder
    started = time.time()
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(task, rng)
    model = new_model(tokenizer)
    loss = float("nan")
    for phase in PHASES[task]:
        loss = train_phase(model, tokenizer, task, phase, rng)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    facts = {
        "task": task,
        "seed": seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "final_loss": loss,
        "wall_seconds": round(time.time() - started, 1),
    }
    (folder / "pretrain.json").write_text(json.dumps(facts, indent=1) + "\n")
    show_samples(model, tokenizer, task, rng)
    return folder


def show_samples(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, task: str, rng: random.Random, count: int = 4
) -> None:
    """Print a few completions of the fresh policy."""
    model.eval()
    for _ in range(count):
        message = sample_dialogue(task, rng)[0][0]
        prompt = tokenizer(user_text(message), return_tensors="pt")
        output = model.generate(
            input_ids=prompt["input_ids"],
            attention_mask=prompt["attention_mask"],
            do_sample=True,
            top_k=0,
            max_new_tokens=72,
        )
        completion = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
        print(f"{message!r} => {completion!r}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted(PHASES))
    workspace.enter()
    print(pretrain(parser.parse_args().task))
