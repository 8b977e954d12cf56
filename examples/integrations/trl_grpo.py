"""TRL: GRPO with a judge's relative rewards, here on a toy model built from nothing, on a CPU.

CAPS_MODEL=qwen3-14b CAPS_BASE_URL=http://localhost:8000/v1 python examples/integrations/trl_grpo.py
"""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from caps.integrations.rewards import GroupRewards
from datasets import Dataset

PAD, EOS = "<pad>", "<eos>"
WORDS = [PAD, EOS, "say", "something", "good", "bad", "fine", "poor", "nice", "dull"]
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BATCH = {"per_device_train_batch_size": 16, "num_generations": 8, "max_completion_length": 3}


def main() -> None:
    """Train for a few steps and print what the rewards of each took."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=PAD))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    reward = GroupRewards(domain="general", log=lambda costs: print(costs.metrics()))
    trainer = GRPOTrainer(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, **SHAPE)),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token=PAD, eos_token=EOS),
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": "say something"}, {"prompt": "something fine"}] * 8),
        args=GRPOConfig("trl-output", report_to="none", use_cpu=True, max_steps=4, logging_steps=1, **BATCH),
    )
    trainer.train()
    calls, pairs = (sum(getattr(one, name) for one in reward.steps) for name in ("judge_calls", "all_pairs"))
    print(f"{len(reward.steps)} steps, {calls} judge calls where all pairs are {pairs}")


if __name__ == "__main__":
    main()
